package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// notTaken is what a slot is told when the kernel did not take its read: no
	// errno is that large.
	notTaken = -1 << 20

	// ringTries is how often reads are offered that the kernel does not take for the moment.
	ringTries = 8

	// lookInterval is how often completions are looked for when the kernel
	// cannot tell of them any more.
	lookInterval = time.Millisecond
)

var (
	errNotTaken   = errors.New("the kernel did not take the read")
	errRingClosed = fmt.Errorf("ring: %w", fs.ErrClosed)
)

// ringEngine lends its slots to readers. A slot is in free, or it belongs to
// one reader, whose read may be in the kernel. So reads in the kernel never
// exceed the depth, and the queues, which are at least as long, never overflow.
//
// The kernel may write to a slot's buffers until its completion is popped.
// Therefore a reader whose read was taken leaves only with that completion.
//
// Locks: mu guards what goes to the kernel and cq what comes back; neither is
// taken under the other or held over a system call.
type ringEngine struct {
	raw     *uring
	enter   func(n uint32) error // raw.enter; tests put failures here
	crowded func() bool          // whether completions would be noticed late
	crowd   crowd
	least   int64 // bytes: smaller reads go by pread
	slots   []ringSlot
	free    chan int      // the slots without a reader, by number
	closing chan struct{} // closed when close begins
	idle    chan struct{} // closed when close holds all slots
	reaped  chan struct{} // closed when the reaper has ended
	once    sync.Once
	closed  error // what the first close returned

	reason atomic.Pointer[string] // the first thing that made a read bypass the ring

	mu         sync.Mutex // guards the submission side of raw, and what follows
	submitting bool       // a reader is submitting for all
	broken     bool       // the kernel is given no more reads

	cq   sync.Mutex // guards the completion side of raw, and what follows
	gone bool       // raw is unmapped
}

// ringSlot is one place. It keeps the buffers that the kernel writes to alive,
// and on the heap.
type ringSlot struct {
	iov  []unix.Iovec // of the read, in room
	room []unix.Iovec // made with the first read
	done chan int32   // holds one, so that no one waits to send
}

func startRing(depth int, least int64) (*ringEngine, error) {
	raw, err := openUring(depth)
	if err != nil {
		return nil, err
	}
	conn, err := raw.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: poll it: %w", ErrNoRing, err), raw.unmap(), raw.file.Close())
	}
	e := &ringEngine{
		raw: raw, enter: raw.enter, least: least, slots: make([]ringSlot, depth), free: make(chan int, depth),
		closing: make(chan struct{}), idle: make(chan struct{}), reaped: make(chan struct{}),
	}
	e.crowded, e.crowd.start = e.crowd.here, time.Now()
	for i := range e.slots {
		e.slots[i].done = make(chan int32, 1)
		e.free <- i
	}
	go e.reap(conn.Read)
	return e, nil
}

// read asks once, through the ring, for what is missing of a request of which
// done bytes are there: some bytes, none at the end, or what the kernel said. The
// error is errNotTaken if the kernel did not take the read.
func (e *ringEngine) read(fd int, r request, done int64) (int, error) {
	id, err := e.take()
	if err != nil {
		return 0, err
	}
	slot := &e.slots[id]
	if slot.room == nil {
		slot.room = make([]unix.Iovec, MaxVector)
	}
	slot.iov = r.iovecs(done, slot.room[:0])
	e.submit(fd, id, r.off+done)
	res := <-slot.done
	clear(slot.iov)
	e.free <- id
	switch {
	case res == notTaken:
		return 0, errNotTaken
	case res < 0:
		return 0, unix.Errno(-res)
	}
	return int(res), nil
}

// take waits for a place.
func (e *ringEngine) take() (int, error) {
	select {
	case id := <-e.free: // cheaper than the choice below
		return id, nil
	default:
	}
	select {
	case id := <-e.free:
		return id, nil
	case <-e.closing:
		return 0, errRingClosed
	}
}

// submit queues a slot's read and sees that the kernel takes it. Who finds
// another reader in the kernel leaves that to it: one call takes all that wait.
func (e *ringEngine) submit(fd, id int, off int64) {
	e.mu.Lock()
	if e.broken {
		e.mu.Unlock()
		e.slots[id].done <- notTaken
		return
	}
	e.raw.push(fd, e.slots[id].iov, off, id)
	if e.submitting {
		e.mu.Unlock()
		return
	}
	e.submitting = true
	for tries := 0; e.raw.waiting() > 0; {
		n, head := e.raw.waiting(), e.raw.head()
		e.mu.Unlock()
		err := e.enter(n)
		e.mu.Lock()
		switch tries++; {
		case e.raw.head() != head:
			tries = 0
		case tries < ringTries && passing(err):
			e.mu.Unlock()
			runtime.Gosched()
			e.mu.Lock()
		default:
			e.giveBackLocked(err)
			tries = 0
		}
	}
	e.submitting = false
	e.mu.Unlock()
}

// passing reports whether a refusal, or one without a reason, may soon be over.
func passing(err error) bool {
	return err == nil || errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) ||
		errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOMEM)
}

// giveBackLocked answers the reads that the kernel does not take with notTaken,
// and breaks the ring unless the kernel is merely short of something. It lets
// go of the mutex while it answers; nobody else submits meanwhile.
func (e *ringEngine) giveBackLocked(err error) {
	if err == nil || !passing(err) {
		e.breakLocked(fmt.Sprintf("the ring broke: the kernel takes no more reads (%v)", err))
	}
	var ids []int
	for e.raw.waiting() > 0 {
		ids = append(ids, e.raw.unpush())
	}
	e.mu.Unlock()
	for _, id := range ids {
		e.slots[id].done <- notTaken
	}
	e.mu.Lock()
}

// breakLocked ends the use of the ring for later reads. Those in the kernel end as always.
func (e *ringEngine) breakLocked(reason string) {
	e.broken = true
	e.bypassed(reason)
}

// bypassed notes the first reason for which a read does not go through the ring.
func (e *ringEngine) bypassed(reason string) { e.reason.CompareAndSwap(nil, &reason) }

func (e *ringEngine) isClosing() bool {
	select {
	case <-e.closing:
		return true
	default:
		return false
	}
}

func (e *ringEngine) isBroken() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.broken
}

// reap is the ring's goroutine: it hands completions to their readers. Wait
// calls its function each time the ring turns readable, and once at the start,
// until that is true, which it never is, or the ring's file is closed.
func (e *ringEngine) reap(wait func(func(uintptr) bool) error) {
	defer close(e.reaped)
	err := wait(func(uintptr) bool {
		e.drain()
		return false
	})
	select {
	case <-e.idle: // closed by us
	default:
		e.mu.Lock()
		e.breakLocked(fmt.Sprintf("the ring broke: completions cannot be waited for (%v)", err))
		e.mu.Unlock()
		e.look()
	}
}

// drain hands out what has completed. It may be called without a slot.
func (e *ringEngine) drain() {
	e.cq.Lock()
	defer e.cq.Unlock()
	for !e.gone {
		id, res, ok := e.raw.pop()
		if !ok {
			return
		}
		e.slots[id].done <- res
	}
}

// look serves the reads that are in the kernel of a broken ring. It needs no
// more than the shared memory, so nothing can keep it from ending.
func (e *ringEngine) look() {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for len(e.free) < len(e.slots) {
		e.drain()
		select {
		case <-ticker.C:
		case <-e.idle:
			return
		}
	}
}

func (e *ringEngine) why() string {
	if reason := e.reason.Load(); reason != nil {
		return *reason
	}
	return ""
}

// close takes all slots: then no reader has one, and none ever will.
func (e *ringEngine) close() error {
	e.once.Do(func() {
		close(e.closing)
		for range e.slots {
			<-e.free
		}
		close(e.idle)
		err := e.raw.file.Close() // wakes the reaper
		<-e.reaped
		e.cq.Lock()
		e.gone = true
		e.cq.Unlock()
		e.closed = errors.Join(err, e.raw.unmap())
	})
	return e.closed
}
