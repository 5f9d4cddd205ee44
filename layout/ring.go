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

// RingOptions says how a ring is set up. The zero value works.
type RingOptions struct {
	// Depth is how many reads may be in the kernel at once, over all files of
	// the ring: 1 to 4096, 0 means 64. Further readers wait for a place.
	Depth int
	// Least is from how many bytes on reads go through the ring; smaller ones go
	// by pread, which is prompter where the ring saves nothing. 0: all.
	Least int64
}

// Ring is an FS over the operating system whose direct reads go through one
// io_uring: a reading goroutine parks as one that waits for the network does,
// and holds neither a thread nor a P of the scheduler. Buffered files, and
// direct ones that the ring cannot read, are those of OS.
//
// The scheduler looks for completions when a P has nothing to run, and else
// only every 10 ms. So each read asks the scheduler first: where goroutines
// compute on all of GOMAXPROCS and more wait for a P, it goes by pread, which
// holds its P until the read is done and so is prompt (BenchmarkLayerWait has the
// figures). To find out, a reader may give way once, which then takes 10 ms; that
// happens at most every 0.6 s. Reads that are under way when such a crowd forms
// may be late by tens of milliseconds.
//
// A ring has one goroutine of its own until Close. Safe for concurrent use.
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
// then proves the same of a read through the ring. Where that fails the file
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

// Reason says why reads of direct files bypass the ring: it broke, or it
// failed the proof on a file. Empty while all go through it.
func (r *Ring) Reason() string { return r.engine.why() }

// Close waits for the reads that are in the kernel, ends the ring's goroutine
// and frees the ring. Reads that still wait for a place, and all later ones,
// end with fs.ErrClosed. Closing twice is harmless.
func (r *Ring) Close() error { return r.engine.close() }

// What Engine answers for the files of this package.
const (
	EngineRing     = "io_uring"
	EnginePread    = "pread (direct)"
	EngineBuffered = "buffered"
)

// Engine says what carries out a file's reads: EngineRing, EnginePread or
// EngineBuffered, or what a file of another package says of itself with a
// method Engine() string. Without that method a file counts as buffered if it
// asks for no alignment, else its engine is "direct". Wrappers should forward
// the method.
func Engine(f File) string {
	if e, ok := f.(interface{ Engine() string }); ok {
		return e.Engine()
	}
	if f.Direct() == (Alignment{}) {
		return EngineBuffered
	}
	return "direct"
}
