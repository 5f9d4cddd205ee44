package layout

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/internal/pagecache"
)

// fakeFile is a file of n bytes on a file system that does with direct reads
// what the given calls do. What they leave out is done through the page cache,
// which needs no alignment: these tests do not depend on the disk.
func fakeFile(t *testing.T, n int, calls directCalls) (osFS, string, []byte) {
	t.Helper()
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + i>>8)
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if calls.open == nil {
		calls.open = os.Open
	}
	if calls.statx == nil {
		calls.statx = statxOf(512, 512, 0)
	}
	if calls.preadv == nil {
		calls.preadv = preadv
	}
	return osFS{func(name string) (File, string, error) { return openDirectBy(&calls, name) }}, path, data
}

// statxOf answers with an alignment; a read alignment of 0 is not told.
func statxOf(memory, offset, read uint32) func(int, *unix.Statx_t) error {
	return func(_ int, st *unix.Statx_t) error {
		st.Mask |= unix.STATX_DIOALIGN
		st.Dio_mem_align, st.Dio_offset_align = memory, offset
		if read != 0 {
			st.Mask |= unix.STATX_DIO_READ_ALIGN
			st.Dio_read_offset_align = read
		}
		return nil
	}
}

type preadvFunc = func(fd int, iov []unix.Iovec, off int64) (int, error)

// turns answers each call by the next function, and all later ones by the last.
func turns(fs ...preadvFunc) preadvFunc {
	calls := 0
	return func(fd int, iov []unix.Iovec, off int64) (int, error) {
		f := fs[min(calls, len(fs)-1)]
		calls++
		return f(fd, iov, off)
	}
}

func refuseWith(errno unix.Errno) preadvFunc {
	return func(int, []unix.Iovec, int64) (int, error) { return 0, errno }
}

// cut reads no more than n bytes.
func cut(n int) preadvFunc {
	return func(fd int, iov []unix.Iovec, off int64) (int, error) {
		iov[0].SetLen(min(n, int(iov[0].Len)))
		return preadv(fd, iov[:1], off)
	}
}

func total(iov []unix.Iovec) (n int) {
	for _, v := range iov {
		n += int(v.Len)
	}
	return n
}

// TestOpenFallsBack: what makes a file buffered from the start.
func TestOpenFallsBack(t *testing.T) {
	for name, test := range map[string]struct {
		calls  directCalls
		reason string
	}{
		"EINVAL at open":     {directCalls{open: func(n string) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: n, Err: unix.EINVAL} }}, "refuses direct reads"},
		"EOPNOTSUPP at open": {directCalls{open: func(n string) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: n, Err: unix.EOPNOTSUPP} }}, "operation not supported"},
		"EFAULT at open":     {directCalls{open: func(n string) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: n, Err: unix.EFAULT} }}, "bad address"},

		"EINVAL at first read":     {directCalls{preadv: refuseWith(unix.EINVAL)}, "a direct read was refused (invalid argument)"},
		"EFAULT at first read":     {directCalls{preadv: refuseWith(unix.EFAULT)}, "a direct read was refused (bad address)"},
		"EOPNOTSUPP at first read": {directCalls{preadv: refuseWith(unix.EOPNOTSUPP)}, "a direct read was refused (operation not supported)"},

		"success without writing": {directCalls{preadv: func(_ int, iov []unix.Iovec, _ int64) (int, error) { return total(iov), nil }}, "other bytes"},
		"wrong bytes": {directCalls{preadv: func(fd int, iov []unix.Iovec, off int64) (int, error) {
			n, err := preadv(fd, iov, off)
			*iov[0].Base ^= 1
			return n, err
		}}, "other bytes"},
		"short, then the end": {directCalls{preadv: func(fd int, iov []unix.Iovec, off int64) (int, error) {
			if off%512 != 0 {
				return 0, nil
			}
			return cut(100)(fd, iov, off)
		}}, "brought 100 bytes"},
		"no direct reads of this file": {directCalls{statx: statxOf(0, 0, 0)}, "does not support direct reads"},
		"absurd alignment":             {directCalls{statx: statxOf(3, 512, 0)}, "asks for an alignment of 3 and 512"},
		"huge alignment":               {directCalls{statx: statxOf(512, 1<<20, 0)}, "asks for an alignment"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, path, want := fakeFile(t, 100_000, test.calls)
			f, err := fsys.Open(path, Direct)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if IsDirect(f) || f.Direct() != (Alignment{}) || Engine(f) != EngineBuffered || !strings.Contains(FallbackReason(f), test.reason) {
				t.Errorf("got alignment %+v and engine %q because %q, want buffered because %q", f.Direct(), Engine(f), FallbackReason(f), test.reason)
			}
			got := make([]byte, len(want)-3) // no alignment is asked for any more
			if n, err := f.ReadAt(got, 3); n != len(got) || err != nil || !bytes.Equal(got, want[3:]) {
				t.Errorf("got %d bytes and %v, want the file", n, err)
			}
		})
	}
	fsys, path, _ := fakeFile(t, 100_000, directCalls{preadv: turns(cut(100), refuseWith(unix.EIO))})
	if _, err := fsys.Open(path, Direct); !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), path) {
		t.Errorf("bad sector at open: got %v, want EIO that names the file", err)
	}
}

// TestLaterReadFallsBack: a direct read that is refused after the proof.
func TestLaterReadFallsBack(t *testing.T) {
	const large = 32 << 10
	sized := func(errno unix.Errno) preadvFunc {
		return func(fd int, iov []unix.Iovec, off int64) (int, error) {
			if total(iov) >= large {
				return 0, errno
			}
			return preadv(fd, iov, off)
		}
	}
	read := func(f File, off, n int64) ([]byte, error) {
		p := alignedBuffer(n, 512)
		got, err := f.ReadAt(p, off)
		return p[:got], err
	}
	for name, test := range map[string]struct {
		preadv preadvFunc
		errno  string
	}{
		"EINVAL at the first read":         {turns(preadv, refuseWith(unix.EINVAL)), "invalid argument"},
		"EFAULT at the first read":         {turns(preadv, refuseWith(unix.EFAULT)), "bad address"},
		"EOPNOTSUPP at the first read":     {turns(preadv, refuseWith(unix.EOPNOTSUPP)), "operation not supported"},
		"EINVAL at a larger read":          {sized(unix.EINVAL), "invalid argument"},
		"EFAULT at a larger read":          {sized(unix.EFAULT), "bad address"},
		"EOPNOTSUPP at a later read":       {turns(preadv, preadv, refuseWith(unix.EOPNOTSUPP)), "operation not supported"},
		"EINVAL in the middle of one read": {turns(preadv, cut(512), refuseWith(unix.EINVAL)), "invalid argument"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, path, want := fakeFile(t, 100_000, directCalls{preadv: test.preadv})
			f, err := fsys.Open(path, Direct)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if !IsDirect(f) || FallbackReason(f) != "" {
				t.Fatalf("got engine %q because %q, want direct after the proof", Engine(f), FallbackReason(f))
			}
			align := f.Direct()
			for _, r := range []struct{ off, n int64 }{{512, 1024}, {1024, large}, {65536, large}, {98304, 4096}} {
				got, err := read(f, r.off, r.n)
				expect := want[r.off:min(r.off+r.n, int64(len(want)))]
				if !bytes.Equal(got, expect) || (err != nil && (err != io.EOF || int64(len(got)) == r.n)) {
					t.Errorf("%d bytes at %d: got %d and %v, want %d right ones", r.n, r.off, len(got), err, len(expect))
				}
			}
			if IsDirect(f) || Engine(f) != EngineBuffered || f.Direct() != align {
				t.Errorf("got engine %q and alignment %+v, want buffered and still %+v", Engine(f), f.Direct(), align)
			}
			for _, word := range []string{test.errno, path, "after open"} {
				if !strings.Contains(FallbackReason(f), word) {
					t.Errorf("got reason %q, want %q in it", FallbackReason(f), word)
				}
			}
			if _, err := read(f, 100, 512); !errors.Is(err, ErrUnaligned) {
				t.Errorf("unaligned read after the fallback: got %v, want ErrUnaligned as before", err)
			}
		})
	}
}

// TestFailuresThatAreNoRefusal do not end direct reads.
func TestFailuresThatAreNoRefusal(t *testing.T) {
	fsys, path, _ := fakeFile(t, 100_000, directCalls{preadv: turns(preadv, refuseWith(unix.EIO))})
	f, err := fsys.Open(path, Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var where *fs.PathError
	if n, err := f.ReadAt(alignedBuffer(4096, 512), 0); n != 0 || !errors.Is(err, unix.EIO) || !errors.As(err, &where) || where.Path != path {
		t.Errorf("bad sector: got %d bytes and %v, want EIO that names the file", n, err)
	}
	if !IsDirect(f) || FallbackReason(f) != "" {
		t.Errorf("bad sector: got engine %q because %q, want direct as before", Engine(f), FallbackReason(f))
	}
}

// TestBadMemoryIsNoFallback: a buffer that is no memory is refused by all ways of
// reading alike, and says nothing about the file.
func TestBadMemoryIsNoFallback(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, 64<<10), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := OS().Open(path, Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !IsDirect(f) || f.Direct().span() > 4096 {
		t.Skipf("got alignment %+v here: %s", f.Direct(), FallbackReason(f))
	}
	mem, err := unix.Mmap(-1, 0, 8192, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if n, err := f.ReadAt(mem, 0); n != 0 || !errors.Is(err, unix.EFAULT) {
		t.Errorf("got %d bytes and %v, want EFAULT", n, err)
	}
	if !IsDirect(f) || FallbackReason(f) != "" {
		t.Errorf("got engine %q because %q, want direct as before", Engine(f), FallbackReason(f))
	}
}

// TestAlignmentOfTheKernel: what statx says, and what the files then ask for.
func TestAlignmentOfTheKernel(t *testing.T) {
	needs := func(n int64) preadvFunc { // a device that needs n, whatever statx says
		return func(fd int, iov []unix.Iovec, off int64) (int, error) {
			for _, v := range iov {
				if !(Alignment{Memory: int(n), Offset: int(n)}).check(bytesOf(v), off) {
					return 0, unix.EINVAL
				}
			}
			return preadv(fd, iov, off)
		}
	}
	silent := func(int, *unix.Statx_t) error { return nil }
	for name, test := range map[string]struct {
		statx  func(int, *unix.Statx_t) error
		preadv preadvFunc
		want   Alignment
	}{
		"512":                            {statxOf(512, 512, 0), needs(512), Alignment{512, 512}},
		"4096":                           {statxOf(4096, 4096, 0), needs(4096), Alignment{4096, 4096}},
		"16384":                          {statxOf(16384, 16384, 0), needs(16384), Alignment{16384, 16384}},
		"4 in memory":                    {statxOf(4, 512, 0), nil, Alignment{4, 512}},
		"reads need less than writes":    {statxOf(4, 16384, 512), nil, Alignment{4, 512}},
		"reads need more than told":      {statxOf(512, 512, 4096), needs(512), Alignment{512, 4096}},
		"says 512, needs 4096":           {statxOf(512, 512, 0), needs(4096), Alignment{4096, 4096}},
		"says 512, needs 16384":          {statxOf(512, 512, 0), needs(16384), Alignment{16384, 16384}},
		"says nothing":                   {silent, nil, Alignment{4096, 4096}},
		"says nothing, needs 16384":      {silent, needs(16384), Alignment{16384, 16384}},
		"fails":                          {func(int, *unix.Statx_t) error { return unix.ENOSYS }, nil, Alignment{4096, 4096}},
		"says 512, needs 64 KiB, so not": {statxOf(512, 512, 0), needs(64 << 10), Alignment{}},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, path, want := fakeFile(t, 3*64<<10, directCalls{statx: test.statx, preadv: test.preadv})
			f, err := fsys.Open(path, Direct)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Direct() != test.want || IsDirect(f) != (test.want != Alignment{}) {
				t.Fatalf("got %+v (%s), want %+v", f.Direct(), FallbackReason(f), test.want)
			}
			block := max(f.Direct().span(), 1)
			for off := int64(0); off < int64(len(want)); off += 3 * block {
				p := alignedBuffer(2*block, block)
				if n, err := f.ReadAt(p, off); !bytes.Equal(p[:n], want[off:off+int64(n)]) || (err != nil && err != io.EOF) {
					t.Errorf("at %d: got %d bytes and %v", off, n, err)
				}
			}
		})
	}
}

// TestCacheStaysEmpty: reads of every engine, and of every fallback, leave less
// than a hundredth of what they read in the page cache.
func TestCacheStaysEmpty(t *testing.T) {
	const size, block = 16 << 20, 52 << 10 // blocks that begin and end within pages
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("outrider"), size/8), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := pagecache.Drop(path); err != nil {
		t.Fatal(err)
	}
	if pages, _, err := pagecache.Cached(path); err != nil || pages > 0 {
		t.Skipf("%d pages stay in the cache of this file system: %v", pages, err)
	}
	later := kernelCalls()
	later.preadv = turns(preadv, refuseWith(unix.EINVAL))
	ring, err := OpenRing(RingOptions{})
	if err != nil {
		t.Log(err)
	} else {
		defer ring.Close()
	}
	for name, open := range map[string]func() (File, error){
		"pread": func() (File, error) { return OS().Open(path, Direct) },
		"ring": func() (File, error) {
			if ring == nil {
				return OS().Open(path, Direct)
			}
			return ring.Open(path, Direct)
		},
		"fallback at open": func() (File, error) { return openBuffered(path, "for the test") },
		"fallback later": func() (File, error) {
			return osFS{func(n string) (File, string, error) { return openDirectBy(later, n) }}.Open(path, Direct)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := pagecache.Drop(path); err != nil {
				t.Fatal(err)
			}
			f, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Direct().span() > 4096 {
				t.Skipf("got alignment %+v", f.Direct())
			}
			p, read := alignedBuffer(block, 4096), int64(0)
			// In an order that is no stream, as experts lie.
			for i := int64(0); i < size/block; i++ {
				off := alignDown((i*7%(size/block))*block+512*(i%8), f.Direct().span())
				n, err := ReadV(f, [][]byte{p[:8192], p[8192:]}, off)
				if read += int64(n); err != nil && err != io.EOF {
					t.Fatal(err)
				}
			}
			pages, _, err := pagecache.Cached(path)
			if err != nil {
				t.Fatal(err)
			}
			if cached := pages * int64(os.Getpagesize()); cached*100 > read {
				t.Errorf("engine %q: got %d of %d read bytes in the page cache, want less than 1 %%", Engine(f), cached, read)
			}
		})
	}
}

func bytesOf(v unix.Iovec) []byte { return unsafe.Slice(v.Base, v.Len) }
