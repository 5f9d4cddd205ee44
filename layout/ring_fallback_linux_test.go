package layout

import (
	"bytes"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestRingReadIsRefusedLater: what the ring is refused after the proof is read
// by pread, and what pread is refused too through the page cache.
func TestRingReadIsRefusedLater(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EFAULT, unix.EOPNOTSUPP} {
		for _, pread := range []bool{true, false} {
			r, f, want := ringed(t, 2, 64<<10)
			if !pread {
				calls := *f.direct.calls
				calls.preadv = refuseWith(errno)
				f.direct.calls = &calls
			}
			k := newKernel(r.engine)
			go func() { k.answer(<-k.taken, -int32(errno)) }()
			engine := EngineBuffered
			if pread {
				engine = EnginePread
			}
			for i := range 2 { // the second time the ring is not asked
				buf := alignedBuffer(16<<10, 4096)
				n, err := ReadV(f, [][]byte{buf[:4096], buf[4096:]}, 8192)
				if n != len(buf) || err != nil || !bytes.Equal(buf, want[8192:][:n]) {
					t.Errorf("%v, read %d: got %d bytes and %v, want all", errno, i, n, err)
				}
				if Engine(f) != engine || IsDirect(f) != pread || f.Direct() == (Alignment{}) || k.calls.Load() != 1 {
					t.Errorf("%v, read %d: got engine %q, alignment %+v and %d reads of the ring, want %q, as before, and 1", errno, i, Engine(f), f.Direct(), k.calls.Load(), engine)
				}
			}
			ring, file := "", f.direct.f.Name()
			if pread {
				ring, file = "but not by pread", ""
			}
			if !strings.Contains(r.Reason(), ring) || !strings.Contains(FallbackReason(f), file) || (FallbackReason(f) == "") != pread {
				t.Errorf("%v: got reasons %q and %q", errno, r.Reason(), FallbackReason(f))
			}
		}
	}
}

// TestRingAsksForVectors: one operation for all buffers, however the kernel
// divides its answer.
func TestRingAsksForVectors(t *testing.T) {
	r, f, _ := ringed(t, 2, 64<<10)
	k := newKernel(r.engine)
	buf := alignedBuffer(32<<10, 4096)
	bufs := [][]byte{buf[:4096], nil, buf[4096:12288], buf[12288:28672]}
	type op struct {
		opcode uint8
		off    uint64
		lens   []int
		res    int32
	}
	ops := []op{
		{uringOpReadv, 4096, []int{4096, 8192, 16384}, 4096 + 512},
		{uringOpReadv, 4096 + 4608, []int{8192 - 512, 16384}, 8192 - 512},
		{uringOpRead, 16384, []int{16384}, 16384},
	}
	go func() {
		for _, want := range ops {
			sqe := <-k.taken
			lens := []int{int(sqe.len)}
			if sqe.opcode == uringOpReadv {
				lens = nil
				slot := &r.engine.slots[sqe.userData]
				if sqe.addr != uint64(uintptr(unsafe.Pointer(unsafe.SliceData(slot.iov)))) || int(sqe.len) != len(slot.iov) {
					t.Errorf("got %+v, want the slot's vector, which stays alive", sqe)
				}
				for _, v := range slot.iov {
					lens = append(lens, int(v.Len))
				}
			}
			same := len(lens) == len(want.lens)
			for i := range lens {
				same = same && lens[i] == want.lens[i]
			}
			if !same || sqe.opcode != want.opcode || sqe.off != want.off {
				t.Errorf("got operation %d at %d into %d, want %+v", sqe.opcode, sqe.off, lens, want)
			}
			k.answer(sqe, want.res)
		}
	}()
	if n, err := f.ReadVAt(bufs, 4096); n != 28672 || err != nil {
		t.Errorf("got %d bytes and %v, want 28672", n, err)
	}
}

// TestCrowdWakesTheParked: who reads by pread hands out what completes meanwhile.
func TestCrowdWakesTheParked(t *testing.T) {
	r, f, want := ringed(t, 4, 64<<10)
	e := r.engine
	var crowded atomic.Bool
	e.crowded = crowded.Load
	e.cq.Lock() // the ring's own goroutine finds nothing out
	done := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(alignedBuffer(4096, 4096), 0)
		done <- err
	}()
	for atomic.LoadUint32(e.raw.cqTail) == *e.raw.cqHead {
		runtime.Gosched()
	}
	crowded.Store(true)
	go e.cq.Unlock()
	buf := alignedBuffer(8192, 4096)
	if n, err := f.ReadAt(buf, 4096); n != 8192 || err != nil || !bytes.Equal(buf, want[4096:][:n]) {
		t.Errorf("in a crowd: got %d bytes and %v, want all", n, err)
	}
	if err := <-done; err != nil {
		t.Errorf("parked: got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	e.drain() // a late one finds nothing
	if _, err := f.ReadAt(buf, 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("in a crowd after Close: got %v, want fs.ErrClosed", err)
	}
}

// TestCrowd: a crowd are goroutines that wait for a P while all compute, other
// than those that give way here; and giving way pauses after it took long.
func TestCrowd(t *testing.T) {
	c := &crowd{start: time.Now()}
	if !c.giveWay() || c.yielding.Load() != 0 {
		t.Errorf("first: got no yield, or %d callers left in it", c.yielding.Load())
	}
	c.paused.Store(1 << 62)
	if c.giveWay() {
		t.Error("paused: got a yield, want none")
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
			}
		})
	}
	found := false
	for range 1000 { // until all of them run or wait
		if found = c.here(); found {
			break
		}
		runtime.Gosched()
	}
	if !found {
		t.Error("more computing goroutines than Ps: got no crowd")
	}
	c.yielding.Store(1 << 30)
	if c.full() {
		t.Error("all that waits gives way: got a crowd, want none")
	}
	stop.Store(true)
	wg.Wait()
	if n := testing.AllocsPerRun(100, func() { c.full() }); n >= 1 && !RaceEnabled {
		t.Errorf("got %v allocations, want none", n)
	}
}

// TestProveFindsAFalseRing: OpenSystem does not take a ring that reads wrongly.
func TestProveFindsAFalseRing(t *testing.T) {
	r, err := OpenRing(RingOptions{Depth: 2})
	if err != nil {
		t.Skip(err)
	}
	defer r.Close()
	if err := r.engine.prove(); err != nil {
		t.Errorf("true ring: got %v", err)
	}
	k := newKernel(r.engine)
	for _, res := range []int32{4096, 100, -int32(unix.EOPNOTSUPP)} { // nothing is written
		go func() {
			k.answer(<-k.taken, res)
			if res == 4096 {
				k.answer(<-k.taken, res)
			}
		}()
		if err := r.engine.prove(); err == nil || errors.Is(err, ErrNoRing) {
			t.Errorf("answer %d: got %v, want an error", res, err)
		}
	}
}
