package layout

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// ringed is a file of n bytes on a ring of its own, and the file's bytes.
func ringed(t *testing.T, depth, n int) (*Ring, *ringFile, []byte) {
	t.Helper()
	r, err := OpenRing(RingOptions{Depth: depth})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { r.Close() })
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

// read reads by a reader that has nothing else to do.
func read(t *testing.T, f *ringFile, bufs [][]byte, off int64) (int, error) {
	t.Helper()
	r := f.NewReader()
	r.Start(f, 7, bufs, off)
	tag, n, err := r.Wait()
	if tag != 7 {
		t.Errorf("got tag %d, want 7", tag)
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: got %v", err)
	}
	return n, err
}

// kernel stands in for the kernel: it takes reads, and answers each at once, or not at
// all where told so.
type kernel struct {
	calls  atomic.Int32
	taken  []uringSQE
	answer func(sqe uringSQE) (res int32, ok bool)
}

func newKernel(e *ringEngine, answer func(uringSQE) (int32, bool)) *kernel {
	k := &kernel{answer: answer}
	e.enter = k.enter
	return k
}

func (k *kernel) enter(u *uring, submit, _ uint32) error {
	k.calls.Add(1)
	for range submit {
		head := u.head()
		sqe := u.sqes[head&u.sqMask]
		atomic.StoreUint32(u.sqHead, head+1)
		k.taken = append(k.taken, sqe)
		if res, ok := k.answer(sqe); ok {
			post(u, sqe, res)
		}
	}
	return nil
}

// post is what the kernel does when a read has ended.
func post(u *uring, sqe uringSQE, res int32) {
	tail := *u.cqTail
	u.cqes[tail&u.cqMask] = uringCQE{userData: sqe.userData, res: res}
	atomic.StoreUint32(u.cqTail, tail+1)
}

// TestRingFallsBack: what the kernel does not take is read by pread.
func TestRingFallsBack(t *testing.T) {
	type enter func(u *uring, submit, least uint32) error
	for _, test := range []struct {
		name   string
		enter  func(call int, real enter, u *uring, submit, least uint32) error
		broken string
	}{
		{"forbidden", func(int, enter, *uring, uint32, uint32) error { return unix.EPERM }, "takes no more reads (operation not permitted)"},
		{"nothing taken", func(int, enter, *uring, uint32, uint32) error { return nil }, "takes no more reads"},
		{"always busy", func(int, enter, *uring, uint32, uint32) error { return unix.EAGAIN }, ""},
		{"interrupted", func(call int, real enter, u *uring, submit, least uint32) error {
			if call < 3 {
				return unix.EINTR
			}
			return real(u, submit, least)
		}, ""},
		{"taken, then forbidden", func(call int, real enter, u *uring, submit, least uint32) error {
			if call > 1 {
				return unix.ENXIO
			}
			return real(u, min(submit, 1), least)
		}, "no such device"},
		{"cannot be waited for", func(_ int, real enter, u *uring, submit, least uint32) error {
			if submit == 0 {
				return unix.EBADF
			}
			return real(u, submit, 0)
		}, "bad file descriptor"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, f, want := ringed(t, 4, 64<<10)
			real, calls := r.engine.enter, 0
			r.engine.enter = func(u *uring, submit, least uint32) error {
				calls++
				return test.enter(calls, real, u, submit, least)
			}
			for range 3 {
				readSeveral(t, f, want, 4)
			}
			engine := EngineRing
			if test.broken != "" {
				engine = EnginePread
			}
			if test.name == "cannot be waited for" && Engine(f) == EngineRing {
				t.Skip("the reads had ended before they were waited for")
			}
			if !strings.Contains(r.Reason(), test.broken) || (r.Reason() == "") != (test.broken == "") || Engine(f) != engine {
				t.Errorf("got engine %q because %q, want %q because %q", Engine(f), r.Reason(), engine, test.broken)
			}
			r.engine.enter = real
			again, err := r.Open(f.f.Name(), Direct)
			if err != nil || Engine(again) != engine {
				t.Fatalf("open again: got %v and %v, want engine %q", again, err, engine)
			}
			again.Close()
		})
	}
}

// readSeveral has n reads of 8 KiB under way at once, and checks them.
func readSeveral(t *testing.T, f *ringFile, want []byte, n int) {
	t.Helper()
	r := f.NewReader()
	bufs := make([][]byte, n)
	for i := range bufs {
		bufs[i] = alignedBuffer(8192, 4096)
		r.Start(f, i, bufs[i:i+1], int64(i)*8192)
	}
	seen := map[int]bool{}
	for range bufs {
		tag, got, err := r.Wait()
		if got != 8192 || err != nil || seen[tag] || !bytes.Equal(bufs[tag], want[tag*8192:][:got]) {
			t.Errorf("tag %d: got %d bytes and %v, want all, once", tag, got, err)
		}
		seen[tag] = true
	}
	if err := r.Close(); err != nil {
		t.Errorf("Close: got %v", err)
	}
}

// TestRingFileContinues: what an answer of the kernel leaves open is read by pread.
func TestRingFileContinues(t *testing.T) {
	const size = 20_000
	errno := func(e unix.Errno) int32 { return -int32(e) }
	for _, test := range []struct {
		name   string
		off    int64
		len    int
		res    int32
		preads int
		n      int
		err    error
	}{
		{"whole", 4096, 12288, 12288, 0, 12288, nil},
		{"short", 4096, 12288, 4096, 1, 12288, nil},
		{"interrupted", 0, 4096, errno(unix.EINTR), 1, 4096, nil},
		{"again", 0, 4096, errno(unix.EAGAIN), 1, 4096, nil},
		{"cancelled with its thread", 0, 4096, errno(unix.ECANCELED), 1, 4096, nil},
		{"end in the middle", 16384, 8192, size - 16384, 0, size - 16384, io.EOF},
		{"behind the end", 20480, 4096, 0, 0, 0, io.EOF},
		{"refused behind the end", 20480, 4096, errno(unix.EINVAL), 0, 0, io.EOF},
		{"nothing", 0, 4096, 0, 0, 0, io.EOF},
		{"fault", 0, 4096, errno(unix.EIO), 0, 0, unix.EIO},
	} {
		r, f, _ := ringed(t, 2, size)
		k := newKernel(r.engine, func(uringSQE) (int32, bool) { return test.res, true })
		calls, preads := *f.calls, 0
		calls.preadv = func(fd int, iov []unix.Iovec, off int64) (int, error) { preads++; return preadv(fd, iov, off) }
		f.calls = &calls
		n, err := read(t, f, [][]byte{alignedBuffer(int64(test.len), 4096)}, test.off)
		var path *fs.PathError
		if n != test.n || !errors.Is(err, test.err) || (test.err == unix.EIO && (!errors.As(err, &path) || path.Path != f.f.Name())) {
			t.Errorf("%s: got %d bytes and %v, want %d and %v", test.name, n, err, test.n, test.err)
		}
		if len(k.taken) != 1 || preads != test.preads {
			t.Errorf("%s: got %d reads of the ring and %d by pread, want 1 and %d", test.name, len(k.taken), preads, test.preads)
		}
	}
}

// TestReaderSubmitsTogether: all that was started goes with one call, which waits too.
func TestReaderSubmitsTogether(t *testing.T) {
	r, f, want := ringed(t, 8, 64<<10)
	real := r.engine.enter
	var submits, leasts []uint32
	r.engine.enter = func(u *uring, submit, least uint32) error {
		submits, leasts = append(submits, submit), append(leasts, least)
		return real(u, submit, least)
	}
	readSeveral(t, f, want, 6)
	if submits[0] != 6 || leasts[0] != 1 {
		t.Errorf("first call: got %d reads, waiting for %d, want 6 and 1", submits[0], leasts[0])
	}
	for i, n := range submits[1:] {
		if n != 0 {
			t.Errorf("call %d: got %d reads more, want none", i+1, n)
		}
	}
}

// TestReaderCloseWaitsForTheKernel: Close returns, and the file is let go, when the
// kernel has no buffer any more.
func TestReaderCloseWaitsForTheKernel(t *testing.T) {
	r, f, _ := ringed(t, 4, 64<<10)
	k := newKernel(r.engine, func(sqe uringSQE) (int32, bool) { return 4096, sqe.off == 0 })
	reader := f.NewReader().(*ringReader)
	for i := range 3 {
		reader.Start(f, i, [][]byte{alignedBuffer(4096, 4096)}, int64(i)*4096)
	}
	if tag, n, err := reader.Wait(); tag != 0 || n != 4096 || err != nil {
		t.Fatalf("got tag %d, %d bytes and %v, want the first", tag, n, err)
	}
	reader.Start(f, 9, [][]byte{alignedBuffer(4096, 4096)}, 0) // never begun
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	u, held := reader.ring, k.taken[1:]
	lingered := 0
	r.engine.enter = func(*uring, uint32, uint32) error {
		if lingered++; lingered > 2 && len(held) > 0 {
			post(u, held[0], 4096)
			held = held[1:]
		}
		return nil
	}
	if _, err := f.f.Stat(); err != nil {
		t.Errorf("a file with reads in the kernel: got %v, want it open", err)
	}
	if err := errors.Join(reader.Close(), reader.Close()); err != nil || len(held) > 0 {
		t.Errorf("Close twice: got %v with %d reads in the kernel, want none", err, len(held))
	}
	if _, err := f.f.Stat(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("the file's descriptor: got %v, want it closed behind the last read", err)
	}
	if reader.Room() != 1 || reader.ring != nil {
		t.Errorf("got room %d and ring %v after Close", reader.Room(), reader.ring)
	}
}

// TestRingsAreLent: readers share rings, have no more than there may be, and read on
// without.
func TestRingsAreLent(t *testing.T) {
	r, f, want := ringed(t, 2, 64<<10)
	for range 3 {
		readSeveral(t, f, want, 2)
	}
	if r.engine.made != 1 || len(r.engine.idle) != 1 {
		t.Errorf("one reader after the other: got %d rings, %d idle, want 1 1", r.engine.made, len(r.engine.idle))
	}
	r.engine.made = maxRings // all others are lent
	u := r.engine.lend()
	reader := f.NewReader()
	if got := reader.Room(); got != 1 {
		t.Errorf("without a ring: got room %d, want 1", got)
	}
	reader.Start(f, 0, [][]byte{alignedBuffer(4096, 4096)}, 0)
	if got := reader.Room(); got != 0 {
		t.Errorf("without a ring, one started: got room %d, want 0", got)
	}
	reader.Close()
	readSeveral(t, f, want, 3)
	if err := r.Close(); err != nil {
		t.Errorf("Close with a ring lent: got %v", err)
	}
	if err := r.engine.giveBack(u); err != nil || u.fd < 0 {
		t.Errorf("giving back after Close: got %v", err)
	}
	if _, err := unix.FcntlInt(uintptr(u.fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("a ring given back after Close: got %v, want its descriptor closed", err)
	}
	if r.engine.made != maxRings-1 || r.Reason() != "" {
		t.Errorf("got %d rings and reason %q, want one fewer and none", r.engine.made, r.Reason())
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
