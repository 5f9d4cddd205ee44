package drive

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

// quickly is Probe with a small table's worth of time, however slow the machine is.
func quickly(t *testing.T, o Options) (*Profile, error) {
	t.Helper()
	o.Duration = maxDuration
	o, err := o.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c := newCall(o)
	c.rounds, c.slice = 2, minSlice
	out := c.run(t.Context())
	return out.profile, out.err
}

func TestProbeOfTheSystem(t *testing.T) {
	dir := t.TempDir()
	p, err := quickly(t, Options{Path: dir, SpaceBytes: minSpace})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("got %v, %v, want an empty folder", entries, err)
	}
	if p.Device.FileSystem == "" || p.FileBytes != minSpace || p.BytesPerSecond <= 0 {
		t.Errorf("got %+v, want figures of this system", p)
	}
	if p.Direct == (p.Fallback != "") || p.Direct != (p.Engine == layout.EnginePread) {
		t.Errorf("got direct %v, fallback %q, engine %q, want them to agree", p.Direct, p.Fallback, p.Engine)
	}
	if c, ok := p.Cell(p.BlockBytes, p.Depth); !ok || c.CPUSecondsPerGiB <= 0 {
		t.Errorf("got %+v, %v, want the advised cell with its processor time", c, ok)
	}
	if err := p.Save(filepath.Join(dir, "p.json")); err != nil {
		t.Error(err)
	}
}

// The file has no name while it is written and read, so that a kill leaves nothing.
func TestTheTemporaryFileHasNoName(t *testing.T) {
	dir := t.TempDir()
	seen, most := 0, 0
	o := Options{Path: dir, SpaceBytes: minSpace, Progress: func(int64, int64) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		seen, most = seen+1, max(most, len(entries))
	}}
	if _, err := quickly(t, o); err != nil {
		t.Fatal(err)
	}
	if seen < 5 || most != 0 {
		t.Errorf("looked %d times and saw up to %d files, want none", seen, most)
	}
}

func TestMemoryIsCalledMemory(t *testing.T) {
	p, err := quickly(t, Options{Path: shm(t), SpaceBytes: minSpace})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(p.Warning, "memory was measured, not a drive: tmpfs") {
		t.Errorf("got %q (direct %v), want a warning", p.Warning, p.Direct)
	}
}

func TestAFileIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, make([]byte, 3<<20), 0o444); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := quickly(t, Options{Path: path})
	if err != nil || p.Kind != KindFile || p.FileBytes != 3<<20 {
		t.Errorf("got %+v, %v, want the file's profile", p, err)
	}
	after, err := os.Stat(path)
	if err != nil || after.ModTime() != before.ModTime() || after.Size() != before.Size() {
		t.Errorf("got %v, %v, want the file as it was", after, err)
	}
}

func TestLoadDoesNotWaitForAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o666); err != nil {
		t.Skip(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v, want an error that tells that it is none", err)
	}
}

func TestMemory(t *testing.T) {
	const hugeBytes = 2 << 20
	m, err := newMemory(5 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b := m.take(3 << 20)
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); at%hugeBytes != 0 || len(b) != 3<<20 || m.touched != 3<<20 {
		t.Errorf("got %d bytes at %#x, %d touched, want 3 MiB at a multiple of 2 MiB", len(b), at, m.touched)
	}
	if b := m.take(5 << 20); len(b) != 5<<20 || m.touched != 5<<20 {
		t.Errorf("got %d bytes, %d touched, want all", len(b), m.touched)
	}
	if err := m.close(); err != nil {
		t.Error(err)
	}
}
