package drive

import (
	"io/fs"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"outrider/internal/device"
	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

const (
	ms      = time.Millisecond
	testDir = "/mnt/fast"
	mib     = 1 << 20
)

var aligned = layout.Alignment{Memory: 512, Offset: 4096}

// oneDrive puts all files of a file system on one drive.
func oneDrive(base layout.FS, d *device.Drive) layout.FS {
	return &device.FS{Base: base, Place: func(string) *device.Drive { return d }}
}

// folder is an empty folder on a drive, with faults. The names in it are those
// of mem; the files are hollow.
func folder(t *testing.T, m device.Model, rules ...faultfs.Rule) (o Options, mem *memfs.FS, faults *faultfs.FS) {
	t.Helper()
	mem = memfs.New(memfs.Options{Align: aligned})
	if err := mem.MkdirAll(testDir); err != nil {
		t.Fatal(err)
	}
	faults = faultfs.New(&hollow{FS: mem}, rules...)
	return Options{Path: testDir, FS: faults, Reads: oneDrive(faults, device.New(m)), SpaceBytes: 32 * mib}, mem, faults
}

// hollow keeps the names of files, and of their content the length.
type hollow struct {
	*memfs.FS
	size atomic.Int64 // of the latest file
}

func (h *hollow) Create(name string) (layout.WriteFile, error) {
	w, err := h.FS.Create(name)
	if err != nil {
		return nil, err
	}
	h.size.Store(0)
	return hollowFile{w, h}, nil
}

func (h *hollow) Open(name string, mode layout.Mode) (layout.File, error) {
	f, err := h.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return blank{size: h.size.Load(), align: aligned}, f.Close()
}

type hollowFile struct {
	layout.WriteFile
	h *hollow
}

func (f hollowFile) WriteAt(p []byte, off int64) (int, error) {
	f.h.size.Store(off + int64(len(p)))
	return len(p), nil
}

// wantEmpty fails if the folder holds anything.
func wantEmpty(t *testing.T, mem *memfs.FS) {
	t.Helper()
	entries, err := mem.ReadDir(testDir)
	if err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v left in the folder, want nothing", entries, err)
	}
}

// blank is a file system with one large file that takes no memory: a read
// changes both ends of the buffer.
type blank struct {
	size  int64
	align layout.Alignment
}

const blankName = "/blank"

func (b blank) Open(name string, _ layout.Mode) (layout.File, error) {
	if name != blankName {
		return nil, fs.ErrNotExist
	}
	return b, nil
}
func (blank) Stat(string) (fs.FileInfo, error)      { return nil, fs.ErrInvalid }
func (blank) ReadDir(string) ([]fs.DirEntry, error) { return nil, fs.ErrInvalid }
func (b blank) Size() int64                         { return b.size }
func (b blank) Direct() layout.Alignment            { return b.align }
func (blank) Close() error                          { return nil }

func (b blank) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > b.size || off%int64(b.align.Offset) != 0 || len(p)%b.align.Offset != 0 {
		return 0, fs.ErrInvalid
	}
	p[0]++
	p[len(p)-1]++
	return len(p), nil
}

// onBlank are the options to probe a file of this size on a drive.
func onBlank(t *testing.T, d *device.Drive, size int64) Options {
	t.Helper()
	mem := memfs.New(memfs.Options{})
	if err := mem.WriteFile(blankName, nil); err != nil {
		t.Fatal(err)
	}
	return Options{Path: blankName, FS: mem, Reads: oneDrive(blank{size: size, align: aligned}, d)}
}

// plain is a drive without surprises.
var plain = device.Model{Latency: ms, BytesPerSecond: 100e6}

// near reports whether two rates differ by a share of the second at most.
func near(got, want, share float64) bool { return math.Abs(got-want) <= share*want }
