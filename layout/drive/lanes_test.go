package drive

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/dummystore"
	"outrider/internal/memfs"
	"outrider/layout"
)

// storeOn builds a store of some lanes in memory, and returns its folder.
func storeOn(t *testing.T, mem *memfs.FS, lanes ...layout.LaneSpec) string {
	t.Helper()
	if err := mem.MkdirAll("/other"); err != nil {
		t.Fatal(err)
	}
	_, err := dummystore.Build(t.Context(), dummystore.Options{
		Shape: layout.Shape{Layers: 2, Experts: 4, TopK: 2}, RecordBytes: 2 << 20, FS: mem, Dir: "/store", Lanes: lanes,
	})
	if err != nil {
		t.Fatal(err)
	}
	return "/store"
}

func TestLanesOfAStoreHaveProfilesOfTheirOwn(t *testing.T) {
	mem := memfs.New(memfs.Options{Align: aligned})
	dir := storeOn(t, mem, layout.LaneSpec{Path: "lane-0.bin", Weight: 1}, layout.LaneSpec{Path: "/other/lane-1.bin", Weight: 1})
	before := mem.Names()
	synctest.Test(t, func(t *testing.T) {
		fast := device.New(device.Model{Latency: 5 * ms, BytesPerSecond: 40e6})
		slow := device.New(device.Model{Latency: 8 * ms, BytesPerSecond: 10e6, Depth: 1})
		reads := &device.FS{Base: mem, Place: func(name string) *device.Drive {
			switch filepath.Base(name) {
			case "lane-0.bin":
				return fast
			case "lane-1.bin":
				return slow
			}
			return nil
		}}
		began := time.Now()
		p, err := Probe(t.Context(), Options{Path: dir, FS: mem, Reads: reads})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > defaultDuration {
			t.Errorf("got %v, want at most %v for both lanes", took, defaultDuration)
		}
		if p.Kind != KindStore || len(p.Lanes) != 2 || len(p.Cells) != 0 {
			t.Fatalf("got %+v, want a store of two lanes", p)
		}
		a, b := p.Lanes[0], p.Lanes[1]
		if !near(a.BytesPerSecond, 40e6, 0.05) || a.BlockBytes != 64<<10 || a.Depth != 4 || a.Kind != KindLane || filepath.Base(a.Path) != "lane-0.bin" {
			t.Errorf("first lane: got %s %s, %.4g bytes/s with blocks of %d at depth %d, want 4e7, 65536 and 4", a.Kind, a.Path, a.BytesPerSecond, a.BlockBytes, a.Depth)
		}
		if !near(b.BytesPerSecond, 9.81e6, 0.05) || b.Depth != 1 {
			t.Errorf("second lane: got %.4g bytes/s at depth %d, want 9.8e6 at 1", b.BytesPerSecond, b.Depth)
		}
		if p.BytesPerSecond != a.BytesPerSecond+b.BytesPerSecond || p.Depth != 4 || p.BlockBytes != b.BlockBytes || p.LatencySeconds != b.LatencySeconds {
			t.Errorf("together: got %.4g bytes/s, blocks of %d at depth %d, latency %v, want the sum and the largest", p.BytesPerSecond, p.BlockBytes, p.Depth, p.LatencySeconds)
		}
		if p.FileBytes != a.FileBytes+b.FileBytes {
			t.Errorf("got %d bytes, want those of both lanes", p.FileBytes)
		}
		if err := p.check(); err != nil {
			t.Errorf("got a profile that Load would refuse: %v", err)
		}
	})
	if after := mem.Names(); strings.Join(after, "|") != strings.Join(before, "|") {
		t.Errorf("got %v after the probe, want %v: a store is only read", after, before)
	}
}

func TestAStoreOfOneLaneHasItsCells(t *testing.T) {
	mem := memfs.New(memfs.Options{Align: aligned})
	dir := storeOn(t, mem)
	synctest.Test(t, func(t *testing.T) {
		p, err := Probe(t.Context(), Options{Path: dir, FS: mem, Reads: oneDrive(mem, device.New(device.Model{Latency: ms, BytesPerSecond: 20e6})), Duration: 3 * time.Second})
		if err != nil || p.Kind != KindStore || len(p.Lanes) != 0 || len(p.Cells) == 0 || p.Path != dir {
			t.Errorf("got %+v, %v, want the store's folder with cells", p, err)
		}
	})
}

func TestManyLanesNeedTime(t *testing.T) {
	c := &call{Options: Options{Path: "/store", Duration: 2 * time.Second}}
	_, err := c.probeLanes(t.Context(), make([]layout.Lane, 3))
	if !errors.Is(err, ErrTime) || !strings.Contains(err.Error(), "each of 3 lanes") {
		t.Errorf("got %v, want %v with the number of lanes", err, ErrTime)
	}
}

func TestDamagedStoreIsRefused(t *testing.T) {
	mem := memfs.New(memfs.Options{Align: aligned})
	dir := storeOn(t, mem)
	if err := mem.WriteFile(filepath.Join(dir, "index.bin"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	_, err := Probe(t.Context(), Options{Path: dir, FS: mem})
	if !errors.As(err, new(*layout.CorruptError)) {
		t.Errorf("got %v, want a *layout.CorruptError", err)
	}
}

func TestLanesTogether(t *testing.T) {
	lane := func(path, device string, rate float64) Profile {
		return Profile{Path: path, Direct: true, Engine: "x", BytesPerSecond: rate, BlockBytes: 65536, Depth: 2, Device: Device{Number: device, Name: "d" + device}}
	}
	shared := together([]Profile{lane("a", "8:0", 3e9), lane("b", "8:16", 2e9), lane("c", "8:0", 2.5e9)})
	if shared.BytesPerSecond != 5e9 || len(shared.Notes) != 1 || !strings.HasPrefix(shared.Notes[0], "c lies on the same drive (d8:0)") {
		t.Errorf("two lanes on one drive: got %.3g bytes/s and %q, want 5e9 and a note on c", shared.BytesPerSecond, shared.Notes)
	}
	memory := lane("b", "", 1)
	memory.Direct, memory.Fallback, memory.Warning, memory.Engine = false, "why", "memory", "y"
	mixed := together([]Profile{lane("a", "", 1), memory})
	if mixed.Direct || mixed.Fallback != "why" || mixed.Warning != "b: memory" || mixed.Engine != "mixed" || mixed.BytesPerSecond != 2 {
		t.Errorf("got %+v, want what is wrong with b", mixed)
	}
}
