package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// defaultRingDepth is more than any single drive needs to be busy.
const defaultRingDepth = 64

// maxRingDepth is far below what kernels allow (32768 entries).
const maxRingDepth = 4096

// RingOptions says how rings are set up. The zero value works.
type RingOptions struct {
	// Depth is how many reads of one Reader may be in the kernel at once: 1 to
	// 4096, 0 means 64.
	Depth int
	// Least is what LeastCarried answers for the files; 0: all.
	Least int64
}

// Ring is an FS over the operating system whose direct files can be read by a Reader
// through io_uring: a goroutine hands the kernel several reads with one call, in
// which it also waits for the first to end. ReadAt and ReadVAt are those of the files
// of OS, as are buffered files and direct ones that io_uring cannot read.
//
// Each Reader has a ring of the kernel's for itself while reads of it are under way,
// up to 64 Readers; those beyond that read by pread, one after another. As with
// pread, the goroutine that waits holds its P until the scheduler notices.
//
// Safe for concurrent use. It has no goroutines.
type Ring struct {
	engine *ringEngine
}

var _ FS = (*Ring)(nil)

// OpenRing sets up a ring; Close ends it. The error is ErrNoRing with the
// reason where there can be none: another system than Linux, a kernel before
// 5.6, or one that forbids io_uring, as containers often do. OS serves there.
func OpenRing(o RingOptions) (*Ring, error) {
	if o.Depth < 0 || o.Depth > maxRingDepth {
		return nil, fmt.Errorf("layout: open ring: depth is %d, want 1 to %d, or 0 for %d", o.Depth, maxRingDepth, defaultRingDepth)
	}
	if o.Least < 0 {
		return nil, fmt.Errorf("layout: open ring: reads of %d bytes and more, want 0 or more", o.Least)
	}
	if o.Depth == 0 {
		o.Depth = defaultRingDepth
	}
	engine, err := startRing(o.Depth, o.Least)
	if err != nil {
		return nil, fmt.Errorf("layout: open ring: %w", err)
	}
	return &Ring{engine: engine}, nil
}

// Open opens a file as OS does, with its proof that direct reads work, and
// then proves the same of a read through a ring. Where that fails the file
// is read directly by pread (Engine tells), and Reason says why. A direct open
// after Close is fs.ErrClosed. The file is to be closed by the caller, before
// or after the ring.
func (r *Ring) Open(name string, mode Mode) (File, error) {
	f, err := OS().Open(name, mode)
	if err != nil || f.Direct() == (Alignment{}) {
		return f, err
	}
	ringed, err := r.engine.adopt(f, name)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return ringed, nil
}

// Stat is that of OS.
func (r *Ring) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// ReadDir is that of OS.
func (r *Ring) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

// Reason says why reads of direct files by a Reader bypass io_uring: it broke, or it
// failed the proof on a file. Empty while all go through it.
func (r *Ring) Reason() string { return r.engine.why() }

// Close frees the rings that no Reader uses; those in use are freed with the last
// read of their Reader. What is started later ends with fs.ErrClosed. Closing twice
// is harmless.
func (r *Ring) Close() error { return r.engine.close() }

// What Engine answers for the files of this package.
const (
	EngineRing     = "io_uring"
	EnginePread    = "pread (direct)"
	EngineBuffered = "buffered"
)

// Engine says what carries out a file's reads: EngineRing (those of a Reader; ReadAt
// is pread), EnginePread or EngineBuffered, or what a file of another package says of
// itself with a method Engine() string. Without that method a file counts as buffered
// if it asks for no alignment, else its engine is "direct". Wrappers should forward
// the method; one that has no Reader is read by pread, whatever it forwards.
func Engine(f File) string {
	if e, ok := f.(interface{ Engine() string }); ok {
		engine := e.Engine()
		if _, multi := f.(MultiFile); !multi && engine == EngineRing {
			return EnginePread
		}
		return engine
	}
	if f.Direct() == (Alignment{}) {
		return EngineBuffered
	}
	return "direct"
}

// EngineFor is Engine for reads of so many bytes: EnginePread where LeastCarried is more.
func EngineFor(f File, bytes int64) string {
	engine := Engine(f)
	if engine == EngineRing && bytes < LeastCarried(f) {
		return EnginePread
	}
	return engine
}
