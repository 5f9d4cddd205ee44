package gain_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/faultfs"
	"outrider/internal/gain"
	"outrider/internal/memfs"
	"outrider/layout"
)

const (
	folder = "/mnt/fast"
	file   = folder + "/model.gguf"
	kib    = 1 << 10
	mib    = 1 << 20
)

// stacked describes a checkpoint of stacked tensors: projections of so many bytes
// for each expert, of an odd offset as GGUF has them, in a file that is there.
func stacked(t *testing.T, mem *memfs.FS, shape layout.Shape, projections ...int64) *layout.Checkpoint {
	t.Helper()
	cp := &layout.Checkpoint{Format: "gguf", Name: "test", Architecture: "test", Shape: shape}
	at := int64(1152)
	for range shape.Layers {
		var layer layout.CheckpointLayer
		for i, bytes := range projections {
			layer.Tensors = append(layer.Tensors, layout.ExpertTensor{
				Projection: layout.Projection{Name: string(rune('a' + i)), Type: "I8", Dims: []int64{bytes, 1}, Bytes: bytes}, Source: "t", Offset: at,
			})
			at += bytes * int64(shape.Experts)
		}
		cp.Layers = append(cp.Layers, layer)
	}
	cp.Files = []layout.CheckpointFile{{Path: file, Size: at}}
	data := make([]byte, at)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if err := mem.MkdirAll(folder); err != nil {
		t.Fatal(err)
	}
	if err := mem.WriteFile(file, data); err != nil {
		t.Fatal(err)
	}
	return cp
}

// bench is a checkpoint in memory whose reads take the time of a drive.
type bench struct {
	mem   *memfs.FS
	drive *device.Drive
	opt   gain.Options
}

func newBench(t *testing.T, m device.Model, shape layout.Shape, projections ...int64) *bench {
	t.Helper()
	b := &bench{mem: memfs.New(memfs.Options{Align: layout.Alignment{Memory: 512, Offset: 4096}}), drive: device.New(m)}
	b.opt = gain.Options{
		Checkpoint: stacked(t, b.mem, shape, projections...), Dir: folder, FS: b.mem, Depth: 4, BlockBytes: 256 * kib,
		Reads:      &device.FS{Base: b.mem, Place: func(string) *device.Drive { return b.drive }},
		SpaceBytes: 8 * mib, Duration: 2 * time.Second,
	}
	return b
}

// onlyTheModel fails if anything but the model is left.
func (b *bench) onlyTheModel(t *testing.T) {
	t.Helper()
	for _, name := range b.mem.Names() {
		if !strings.HasPrefix(file, name) {
			t.Errorf("got %s left behind, want nothing but the model", name)
		}
	}
}

var small = layout.Shape{Layers: 6, Experts: 16, TopK: 4}

// slowStart is a drive whose reads cost what 300 KB of transfer do.
var slowStart = device.Model{Latency: time.Millisecond, BytesPerSecond: 300e6, Depth: 1}

func TestPaysForSmallExperts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, slowStart, small, 20_000, 20_000, 20_000)
		began := time.Now()
		got, err := gain.Measure(t.Context(), b.opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("a store %s: gain %.2f, in place %.0f %% of the raw rate, a store %.0f %%", got.Verdict, got.Gain.Median, 100*got.InPlace.ShareOfRaw, 100*got.Store.ShareOfRaw)
		// Three reads of 1 ms and a fifteenth each against one of 1 ms and a fifth.
		if got.Verdict != gain.Pays || got.Gain.Median < 2.4 || got.Gain.Median > 3 || !strings.Contains(got.Reason, "1 read of an expert instead of 3 reads") {
			t.Errorf("got %s, %s, gain %+v; want that it pays, about 2.7 times", got.Verdict, got.Reason, got.Gain)
		}
		if got.InPlace.ReadsPerToken != 72 || got.Store.ReadsPerToken != 24 {
			t.Errorf("reads a token: got %v and %v, want 6 layers x 4 experts x 3 and x 1", got.InPlace.ReadsPerToken, got.Store.ReadsPerToken)
		}
		if ratio := got.InPlace.StallPerToken / got.Store.StallPerToken; math.Abs(ratio/got.Gain.Median-1) > 0.05 {
			t.Errorf("stall: got %v and %v s, want them in the ratio of the gain %v", got.InPlace.StallPerToken, got.Store.StallPerToken, got.Gain.Median)
		}
		// By the model: 24 reads, one after the other.
		if want := 24 * (0.001 + 61440/300e6); math.Abs(got.Store.StallPerToken/want-1) > 0.05 {
			t.Errorf("stall with a store: got %v s, want about %v", got.Store.StallPerToken, want)
		}
		if got.Again < 0.9 || got.Again > 1.1 || got.Rounds < 5 || !got.InPlace.Direct || !got.Store.Direct {
			t.Errorf("got %+v, want a steady drive, several rounds, direct reads", got)
		}
		if spent := time.Since(began); spent > b.opt.Duration {
			t.Errorf("took %v, want at most %v", spent, b.opt.Duration)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
		b.onlyTheModel(t)
	})
}

func TestDoesNotPayForLargeProjections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, device.Model{Latency: 100 * time.Microsecond, BytesPerSecond: 100e6}, layout.Shape{Layers: 2, Experts: 8, TopK: 2}, mib, mib)
		got, err := gain.Measure(t.Context(), b.opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("a store %s: gain %.2f, in place %.0f %% of the raw rate, a store %.0f %%", got.Verdict, got.Gain.Median, 100*got.InPlace.ShareOfRaw, 100*got.Store.ShareOfRaw)
		if got.Verdict != gain.PaysNot || got.Gain.High >= 1.1 || got.InPlace.ShareOfRaw < 0.9 || !strings.Contains(got.Reason, "few and large") {
			t.Errorf("got %s, %s, %+v; want that it does not pay since in place is near the raw rate", got.Verdict, got.Reason, got)
		}
		if got.InPlace.ShareOfRaw > 1.1 || got.Store.ShareOfRaw > 1.1 {
			t.Errorf("shares of raw: got %v and %v, want about 1", got.InPlace.ShareOfRaw, got.Store.ShareOfRaw)
		}
		b.onlyTheModel(t)
	})
}

// A drive that answers any number of reads at once makes three reads as quick as
// one, though neither is near the raw rate.
func TestDoesNotPayWhereLatencyOverlaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, device.Model{Latency: time.Millisecond, BytesPerSecond: 10e9}, small, 20_000, 20_000, 20_000)
		b.opt.Depth = 64
		got, err := gain.Measure(t.Context(), b.opt)
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict != gain.PaysNot || !strings.Contains(got.Reason, "too little to matter") {
			t.Errorf("got %s, %s, gain %+v; want that it does not pay", got.Verdict, got.Reason, got.Gain)
		}
	})
}

func TestUncertainOnAnUnsteadyDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := device.Model{Latency: time.Millisecond, BytesPerSecond: 300e6, Rule: device.Stall(40, 40*time.Millisecond, 7)}
		b := newBench(t, m, small, 60_000, 60_000)
		b.opt.Depth = 16
		got, err := gain.Measure(t.Context(), b.opt)
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict != gain.Uncertain || !strings.Contains(got.Reason, "measure again") {
			t.Errorf("got %s, %s, gain %+v; want no verdict over stalls", got.Verdict, got.Reason, got.Gain)
		}
	})
}

func TestUncertainWhenTimeIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, device.Model{Latency: 250 * time.Millisecond, Depth: 1}, small, 20_000, 20_000, 20_000)
		got, err := gain.Measure(t.Context(), b.opt)
		if err != nil {
			t.Fatal(err)
		}
		if got.Verdict != gain.Uncertain || got.Rounds >= 5 || !strings.Contains(got.Reason, "allow more") {
			t.Errorf("got %s, %s after %d rounds, want no verdict", got.Verdict, got.Reason, got.Rounds)
		}
	})
}

func TestSampleStaysInItsSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, slowStart, layout.Shape{Layers: 3, Experts: 8, TopK: 4}, 400*kib, 300*kib)
		b.opt.SpaceBytes = mib + mib/2
		got, err := gain.Measure(t.Context(), b.opt)
		if err != nil {
			t.Fatal(err)
		}
		// Two of the four experts of a batch fit.
		if want := (gain.Sample{Layers: 1, Experts: 2, Batch: 2, Bytes: 2 * 700 * kib}); got.Sample != want {
			t.Errorf("got %+v, want %+v", got.Sample, want)
		}
		if got.StoreBytes < 24*700*kib || got.StoreBytes > 24*700*kib*102/100 || got.BuildSeconds < 0 {
			t.Errorf("store: got %d bytes in %v s, want the whole model's", got.StoreBytes, got.BuildSeconds)
		}
	})
}

func TestErrorsLeaveNothing(t *testing.T) {
	broken := errors.New("broken cable")
	for name, c := range map[string]struct {
		change func(*bench)
		is     error
		word   string
	}{
		"an expert is larger than the space": {func(b *bench) {
			b.opt.Checkpoint, b.opt.SpaceBytes = stacked(t, b.mem, layout.Shape{Layers: 1, Experts: 2, TopK: 1}, mib, mib), mib
		}, gain.ErrSpace, "allow at least that"},
		"reads fail in place": {func(b *bench) {
			b.opt.Reads = faultfs.New(b.mem, faultfs.Rule{Op: faultfs.ReadAt, Name: "model.gguf", Err: broken})
		}, broken, "model.gguf"},
		"reads fail in the store": {func(b *bench) {
			b.opt.Reads = faultfs.New(b.mem, faultfs.Rule{Op: faultfs.ReadAt, Name: "lane-0.bin", Err: broken})
		}, broken, "lane-0.bin"},
		"no folder":    {func(b *bench) { b.opt.Dir = "/mnt/other" }, nil, "/mnt/other"},
		"another size": {func(b *bench) { b.opt.Checkpoint.Files[0].Size++ }, layout.ErrSourceChanged, "model.gguf"},
		"packing takes too long": {func(b *bench) {
			b.opt.FS = faultfs.New(b.mem, faultfs.Rule{Op: faultfs.Sync, Kind: faultfs.Delay, Delay: time.Minute})
		}, gain.ErrTime, "allow more time or less space"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, slowStart, small, 20_000, 20_000, 20_000)
				c.change(b)
				_, err := gain.Measure(t.Context(), b.opt)
				if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.word) {
					t.Errorf("got %v, want %v that says %q", err, c.is, c.word)
				}
				b.onlyTheModel(t)
			})
		})
	}
}

func TestCancelledLeavesNothing(t *testing.T) {
	for _, after := range []time.Duration{0, 50 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, slowStart, small, 20_000, 20_000, 20_000)
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			if _, err := gain.Measure(ctx, b.opt); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: got %v, want the context's end", after, err)
			}
			b.onlyTheModel(t)
		})
	}
}

func TestOptionsRefused(t *testing.T) {
	cp := &layout.Checkpoint{}
	for _, o := range []gain.Options{
		{Dir: "x"}, {Checkpoint: cp}, {Checkpoint: cp, Dir: "x", Depth: -1}, {Checkpoint: cp, Dir: "x", Depth: 1025}, {Checkpoint: cp, Dir: "x", RawDepth: 1025},
		{Checkpoint: cp, Dir: "x", BlockBytes: 5000}, {Checkpoint: cp, Dir: "x", BlockBytes: 128 * mib},
		{Checkpoint: cp, Dir: "x", Duration: time.Millisecond}, {Checkpoint: cp, Dir: "x", SpaceBytes: 1},
	} {
		if err := o.Validate(); err == nil || !strings.HasPrefix(err.Error(), "gain: ") {
			t.Errorf("%+v: got %v, want an error of gain", o, err)
		}
	}
	if err := (gain.Options{Checkpoint: cp, Dir: "x"}).Validate(); err != nil {
		t.Errorf("got %v, want the defaults to do", err)
	}
}
