package layout

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ringed is a file of n bytes on a ring of its own that takes every read, however
// busy the machine, and the file's bytes.
func ringed(t *testing.T, depth, n int) (*Ring, *ringFile, []byte) {
	t.Helper()
	r, err := OpenRing(RingOptions{Depth: depth})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { r.Close() })
	r.SetCrowded(func() bool { return false })
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := r.Open(path, Direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	file, ok := f.(*ringFile)
	if !ok || f.Direct().Offset > 4096 || f.Direct().Memory > 4096 {
		t.Skipf("got engine %q and alignment %+v here: %s%s", Engine(f), f.Direct(), r.Reason(), FallbackReason(f))
	}
	return r, file, data
}

// TestRingFallsBack: what the kernel does not take is read by pread.
func TestRingFallsBack(t *testing.T) {
	for _, test := range []struct {
		name   string
		enter  func(call int, real func(uint32) error, n uint32) error
		broken string
	}{
		{"forbidden", func(int, func(uint32) error, uint32) error { return unix.EPERM }, "takes no more reads (operation not permitted)"},
		{"nothing taken", func(int, func(uint32) error, uint32) error { return nil }, "takes no more reads"},
		{"always busy", func(int, func(uint32) error, uint32) error { return unix.EAGAIN }, ""},
		{"interrupted", func(call int, real func(uint32) error, n uint32) error {
			if call < 3 {
				return unix.EINTR
			}
			return real(n)
		}, ""},
		{"taken, then forbidden", func(call int, real func(uint32) error, n uint32) error {
			if call > 1 {
				return unix.ENXIO
			}
			return real(n)
		}, "no such device"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, f, want := ringed(t, 2, 64<<10)
			real, calls := r.engine.enter, 0
			r.engine.enter = func(n uint32) error { calls++; return test.enter(calls, real, n) }
			for range 3 {
				buf := alignedBuffer(16<<10, 4096)
				if n, err := f.ReadAt(buf, 8192); n != len(buf) || err != nil || !bytes.Equal(buf, want[8192:][:n]) {
					t.Errorf("got %d bytes and %v, want all", n, err)
				}
			}
			engine := EngineRing
			if test.broken != "" {
				engine = EnginePread
			}
			if !strings.Contains(r.Reason(), test.broken) || (r.Reason() == "") != (test.broken == "") || Engine(f) != engine {
				t.Errorf("got engine %q because %q, want %q because %q", Engine(f), r.Reason(), engine, test.broken)
			}
			r.engine.enter = real
			again, err := r.Open(f.direct.f.Name(), Direct)
			if err != nil || Engine(again) != engine {
				t.Fatalf("open again: got %v and %v, want engine %q", again, err, engine)
			}
			again.Close()
		})
	}
}

// TestRingWithoutNotice: reads in the kernel end although the poller fails.
func TestRingWithoutNotice(t *testing.T) {
	r, f, want := ringed(t, 4, 1<<20)
	var wg sync.WaitGroup
	var once sync.Once
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				buf := alignedBuffer(16<<10, 4096)
				if n, err := f.ReadAt(buf, 8192); n != len(buf) || err != nil || !bytes.Equal(buf, want[8192:][:n]) {
					t.Errorf("got %d bytes and %v, want all", n, err)
					return
				}
				if i == 100 {
					once.Do(func() {
						if err := r.engine.raw.file.SetReadDeadline(time.Unix(1, 0)); err != nil {
							t.Error(err)
						}
					})
				}
			}
		})
	}
	wg.Wait()
	<-r.engine.reaped
	if !strings.Contains(r.Reason(), "completions cannot be waited for") || Engine(f) != EnginePread {
		t.Errorf("got engine %q because %q, want pread", Engine(f), r.Reason())
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: got %v", err)
	}
}

// kernel stands in for the kernel: it takes reads, and answers them when told.
type kernel struct {
	e     *ringEngine
	taken chan uringSQE
	calls atomic.Int32
}

func newKernel(e *ringEngine) *kernel {
	k := &kernel{e: e, taken: make(chan uringSQE, 64)}
	e.enter = k.enter
	return k
}

func (k *kernel) enter(n uint32) error {
	k.calls.Add(1)
	for ; n > 0; n-- {
		head := k.e.raw.head()
		sqe := k.e.raw.sqes[head&k.e.raw.sqMask]
		atomic.StoreUint32(k.e.raw.sqHead, head+1)
		k.taken <- sqe
	}
	return nil
}

func (k *kernel) answer(sqe uringSQE, res int32) { k.e.slots[sqe.userData].done <- res }

func TestRingFileContinues(t *testing.T) {
	const size = 20_000
	type step struct {
		off, len int // what must be asked
		res      int32
	}
	errno := func(e unix.Errno) int32 { return -int32(e) }
	for _, test := range []struct {
		name  string
		off   int64
		len   int
		steps []step
		n     int
		err   error
	}{
		{"short reads", 4096, 12288, []step{{4096, 12288, 4096}, {8192, 8192, 4096}, {12288, 4096, 4096}}, 12288, nil},
		{"again", 0, 4096, []step{{0, 4096, errno(unix.EAGAIN)}, {0, 4096, errno(unix.EINTR)}, {0, 4096, errno(unix.ECANCELED)}, {0, 4096, 4096}}, 4096, nil},
		{"end in the middle", 16384, 8192, []step{{16384, 8192, size - 16384}}, size - 16384, io.EOF},
		{"behind the end", 20480, 4096, []step{{20480, 4096, 0}}, 0, io.EOF},
		{"refused behind the end", 20480, 4096, []step{{20480, 4096, errno(unix.EINVAL)}}, 0, io.EOF},
		{"nothing", 0, 4096, []step{{0, 4096, 0}}, 0, io.EOF},
		{"fault", 0, 4096, []step{{0, 4096, errno(unix.EIO)}}, 0, unix.EIO},
		{"fault after a short read", 0, 8192, []step{{0, 8192, 4096}, {4096, 4096, errno(unix.EIO)}}, 4096, unix.EIO},
		{"not taken after a short read", 0, 8192, []step{{0, 8192, 4096}, {4096, 4096, notTaken}}, 8192, nil},
	} {
		r, f, _ := ringed(t, 2, size)
		k := newKernel(r.engine)
		go func() {
			for _, s := range test.steps {
				sqe := <-k.taken
				if int(sqe.off) != s.off || int(sqe.len) != s.len || sqe.opcode != uringOpRead || int(sqe.fd) != f.direct.fd {
					t.Errorf("%s: got %+v asked, want %d bytes at %d", test.name, sqe, s.len, s.off)
				}
				k.answer(sqe, s.res)
			}
		}()
		n, err := f.ReadAt(alignedBuffer(int64(test.len), 4096), test.off)
		var path *fs.PathError
		if n != test.n || !errors.Is(err, test.err) || (test.err == unix.EIO && (!errors.As(err, &path) || path.Path != f.direct.f.Name())) {
			t.Errorf("%s: got %d bytes and %v, want %d and %v", test.name, n, err, test.n, test.err)
		}
		if int(k.calls.Load()) != len(test.steps) {
			t.Errorf("%s: got %d reads, want %d", test.name, k.calls.Load(), len(test.steps))
		}
	}
}

func TestRingGivesUpInterruptedReads(t *testing.T) {
	r, f, want := ringed(t, 2, 8192)
	k := newKernel(r.engine)
	go func() {
		for range ringTries {
			k.answer(<-k.taken, -int32(unix.EINTR))
		}
	}()
	buf := alignedBuffer(8192, 4096)
	if n, err := f.ReadAt(buf, 0); n != 8192 || err != nil || !bytes.Equal(buf, want) {
		t.Errorf("got %d bytes and %v, want all by pread", n, err)
	}
	if r.Reason() != "" {
		t.Errorf("got reason %q, want none: the ring is whole", r.Reason())
	}
}

// TestRingSubmitsTogether: reads that come while one is being submitted go
// with one call.
func TestRingSubmitsTogether(t *testing.T) {
	r, f, want := ringed(t, 8, 8192)
	e := r.engine
	real, first, gate := e.enter, make(chan struct{}), make(chan struct{})
	var counts []uint32 // calls never overlap
	e.enter = func(n uint32) error {
		if counts = append(counts, n); len(counts) == 1 {
			close(first)
			<-gate
		}
		return real(n)
	}
	var wg sync.WaitGroup
	read := func() {
		buf := alignedBuffer(8192, 4096)
		if n, err := f.ReadAt(buf, 0); n != 8192 || err != nil || !bytes.Equal(buf, want) {
			t.Errorf("got %d bytes and %v, want all", n, err)
		}
	}
	wg.Go(read)
	<-first
	for range 3 {
		wg.Go(read)
	}
	for queued := uint32(0); queued < 4; runtime.Gosched() {
		e.mu.Lock()
		queued = e.raw.waiting()
		e.mu.Unlock()
	}
	close(gate)
	wg.Wait()
	if len(counts) != 2 || counts[0] != 1 || counts[1] != 3 {
		t.Errorf("got calls for %v reads, want [1 3]", counts)
	}
}

// TestRingCloseWaitsForTheKernel: Close ends the readers without a place and
// waits for those whose buffer the kernel has.
func TestRingCloseWaitsForTheKernel(t *testing.T) {
	r, f, _ := ringed(t, 1, 8192)
	k := newKernel(r.engine)
	type result struct {
		n   int
		err error
	}
	held, waits, closed := make(chan result, 1), make(chan result, 1), make(chan error, 1)
	read := func(to chan result) {
		n, err := f.ReadAt(alignedBuffer(4096, 4096), 0)
		to <- result{n, err}
	}
	go read(held)
	sqe := <-k.taken
	go read(waits)
	go func() { closed <- r.Close() }()
	if got := <-waits; got.n != 0 || !errors.Is(got.err, fs.ErrClosed) {
		t.Errorf("read without a place: got %+v, want fs.ErrClosed", got)
	}
	if err := f.Close(); err != nil {
		t.Errorf("closing the file meanwhile: got %v", err)
	}
	select {
	case err := <-closed:
		t.Errorf("Close ended with %v while the kernel had a buffer", err)
	default:
	}
	k.answer(sqe, 4096)
	if got := <-held; got.n != 4096 || got.err != nil {
		t.Errorf("read in the kernel: got %+v, want all", got)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: got %v", err)
	}
	if _, err := f.direct.f.Stat(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the file's descriptor: got %v, want it closed behind the last read", err)
	}
}

func TestRingRefusals(t *testing.T) {
	for errno, word := range map[unix.Errno]string{
		unix.ENOSYS: "has no io_uring", unix.EPERM: "io_uring_disabled", unix.ENOMEM: "ulimit -l", unix.EMFILE: "refuses",
	} {
		err := refusedRing(errno)
		if !errors.Is(err, ErrNoRing) || !errors.Is(err, errno) || !strings.Contains(err.Error(), word) {
			t.Errorf("%v: got %v, want ErrNoRing and %q", errno, err, word)
		}
	}
	old := &uring{}
	if err := old.mapQueues(&uringParams{features: uringFeatSingleMmap}); !errors.Is(err, ErrNoRing) || !strings.Contains(err.Error(), "older than 5.6") {
		t.Errorf("old kernel: got %v, want ErrNoRing", err)
	}
}
