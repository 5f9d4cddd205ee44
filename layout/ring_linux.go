package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
)

// maxRings bounds the rings of an engine, and with them its descriptors and memory.
const maxRings = 64

var (
	errNotTaken   = errors.New("the kernel did not take the read")
	errRingClosed = fmt.Errorf("ring: %w", fs.ErrClosed)
)

// ringEngine lends rings to readers, the one used last first, since its memory is
// warm. mu is not held over a system call.
type ringEngine struct {
	depth int   // of each ring
	least int64 // see RingOptions
	// enter is the kernel's: it takes submit reads and waits for least ends. Tests
	// put failures here.
	enter func(u *uring, submit, least uint32) error

	reason atomic.Pointer[string] // the first thing that made a read bypass the rings
	broken atomic.Bool            // the kernel is given no more reads

	mu   sync.Mutex // guards the fields below
	idle []*uring
	made int // that were not freed: idle ones and those that are lent

	closed atomic.Bool // written under mu
}

func startRing(depth int, least int64) (*ringEngine, error) {
	first, err := openUring(depth)
	if err != nil {
		return nil, err
	}
	return &ringEngine{depth: depth, least: least, enter: (*uring).enter, idle: []*uring{first}, made: 1}, nil
}

// lend gives a ring out, nil if there is none to be had.
func (e *ringEngine) lend() *uring {
	e.mu.Lock()
	if n := len(e.idle); n > 0 {
		u := e.idle[n-1]
		e.idle = e.idle[:n-1]
		e.mu.Unlock()
		return u
	}
	if e.closed.Load() || e.made == maxRings {
		e.mu.Unlock()
		return nil
	}
	e.made++
	e.mu.Unlock()
	u, err := openUring(e.depth)
	if err != nil {
		e.bypassed(fmt.Sprintf("a further ring was refused (%v)", err))
		e.mu.Lock()
		e.made--
		e.mu.Unlock()
		return nil
	}
	return u
}

// giveBack takes a ring of which no read is in the kernel.
func (e *ringEngine) giveBack(u *uring) error {
	e.mu.Lock()
	keep := !e.closed.Load()
	if keep {
		e.idle = append(e.idle, u)
	} else {
		e.made--
	}
	e.mu.Unlock()
	if keep {
		return nil
	}
	return u.close()
}

// spare reports whether a reader that has no ring could get one.
func (e *ringEngine) spare() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.closed.Load() && (len(e.idle) > 0 || e.made < maxRings)
}

// breakFor ends the use of the rings for later reads. Those in the kernel end as always.
func (e *ringEngine) breakFor(cause error) {
	e.broken.Store(true)
	e.bypassed(fmt.Sprintf("the ring broke: the kernel takes no more reads (%v)", cause))
}

// bypassed notes the first reason for which a read does not go through a ring.
func (e *ringEngine) bypassed(reason string) { e.reason.CompareAndSwap(nil, &reason) }

func (e *ringEngine) isBroken() bool { return e.broken.Load() }

func (e *ringEngine) why() string {
	if reason := e.reason.Load(); reason != nil {
		return *reason
	}
	return ""
}

func (e *ringEngine) close() error {
	e.mu.Lock()
	idle := e.idle
	e.idle = nil
	e.closed.Store(true)
	e.made -= len(idle)
	e.mu.Unlock()
	var errs []error
	for _, u := range idle {
		errs = append(errs, u.close())
	}
	return errors.Join(errs...)
}
