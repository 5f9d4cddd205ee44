package layout

import (
	"errors"
	"fmt"
)

// EngineKind says what is to carry out direct reads.
type EngineKind uint8

const (
	AutoEngine  EngineKind = iota // io_uring where the kernel offers it, else pread
	RingEngine                    // io_uring or an error
	PreadEngine                   // one system call a read
)

// SystemOptions say how the operating system's files are read. The zero value works.
type SystemOptions struct {
	Engine EngineKind
	// Depth is RingOptions.Depth; it means nothing to pread.
	Depth int
}

// System is the operating system's file system with the engine that was chosen
// for it: that of OS or of a Ring. Safe for concurrent use.
type System struct {
	FS
	ring   *Ring // nil: pread
	reason string
}

// leastRingRead is the size from which on carrying several reads gains more than it
// costs beside a model that computes (the demo's experts of 51 KiB stalled a tenth
// longer).
const leastRingRead = 256 << 10

// OpenSystem chooses an engine; Close ends it. AutoEngine takes io_uring if the
// kernel allows it and reads of a file in memory through it come back whole, and pread
// if not (Reason says why); smaller reads than 256 KiB it leaves to pread (LeastCarried),
// RingEngine none. A file with which io_uring fails its own proof is read by
// pread in any case. With RingEngine the error is ErrNoRing where there can be no ring.
func OpenSystem(o SystemOptions) (*System, error) {
	switch o.Engine {
	case PreadEngine:
		return &System{FS: OS(), reason: "pread was asked for"}, nil
	case AutoEngine, RingEngine:
	default:
		return nil, fmt.Errorf("layout: open system: no engine %d", o.Engine)
	}
	options := RingOptions{Depth: o.Depth}
	if o.Engine == AutoEngine {
		options.Least = leastRingRead
	}
	ring, err := OpenRing(options)
	if err == nil {
		if err = ring.engine.prove(); err == nil {
			return &System{FS: ring, ring: ring}, nil
		}
		err = errors.Join(fmt.Errorf("layout: open ring: %w: a read through it failed: %w", ErrNoRing, err), ring.Close())
	}
	if o.Engine == RingEngine || !errors.Is(err, ErrNoRing) {
		return nil, err
	}
	return &System{FS: OS(), reason: err.Error()}, nil
}

// Engine is what carries out the reads of files opened with mode Direct, as far
// as these allow: EngineRing, EnginePread, or EngineBuffered on a system for
// which this package knows no direct reads. Engine of a File says it for that file.
func (s *System) Engine() string {
	switch {
	case s.ring != nil && !s.ring.engine.isBroken():
		return EngineRing
	case directReads:
		return EnginePread
	}
	return EngineBuffered
}

// Reason says why not all direct reads go through io_uring. Empty while they do.
func (s *System) Reason() string {
	if s.ring != nil {
		return s.ring.Reason()
	}
	return s.reason
}

// Close is that of the Ring, if there is one: files must not be read any more. A
// second call is harmless.
func (s *System) Close() error {
	if s.ring == nil {
		return nil
	}
	return s.ring.Close()
}
