package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

// Alignments to try: what the kernel says first, then sizes that drives and
// file systems have been seen to need although they said less.
const (
	fallbackAlign = 4096
	largestAlign  = 16384

	// maxDirectAlign bounds what the kernel may ask for: every buffer pays it.
	maxDirectAlign = 64 << 10
)

// kernelCalls is the real kernel's.
func kernelCalls() *directCalls {
	return &directCalls{
		open: func(name string) (*os.File, error) { return directio.OpenFile(name, os.O_RDONLY, 0) },
		statx: func(fd int, st *unix.Statx_t) error {
			return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN|unix.STATX_DIO_READ_ALIGN, st)
		},
		preadv: preadv,
	}
}

func openDirect(name string) (File, string, error) { return openDirectBy(kernelCalls(), name) }

// openDirectBy opens a file for direct reads. No file and no error means that
// direct reads do not work here, for the reason given.
func openDirectBy(calls *directCalls, name string) (File, string, error) {
	f, err := calls.open(name)
	if err != nil {
		if refused(err) {
			return nil, fmt.Sprintf("the file system refuses direct reads (%v)", err), nil
		}
		return nil, "", err
	}
	plain, err := os.Open(name)
	if err != nil {
		return nil, "", errors.Join(err, f.Close())
	}
	readNoFurther(plain)
	d, reason, err := proveDirect(calls, f, plain)
	if d == nil {
		return nil, reason, errors.Join(err, f.Close(), plain.Close())
	}
	return d, "", nil
}

// proveDirect finds an alignment with which a direct read of f brings the same
// bytes as a buffered one.
func proveDirect(calls *directCalls, f, plain *os.File) (*directFile, string, error) {
	size, reason, err := sameFile(f, plain)
	if reason != "" || err != nil {
		return nil, reason, err
	}
	first, reason := askAlignment(calls, f)
	if reason != "" {
		return nil, reason, nil
	}
	tries := []Alignment{first}
	for size := fallbackAlign; size <= largestAlign; size *= 4 {
		if size > int(first.span()) {
			tries = append(tries, Alignment{Memory: size, Offset: size})
		}
	}
	for _, align := range tries {
		d := newDirectFile(f, plain, size, align, calls)
		reason, err = probe(directOnly{d}, plain, align, size)
		dropPages(plain, 0, 2*int64(align.Offset))
		if reason == "" && err == nil {
			return d, "", nil
		}
		if err != nil && !refused(err) {
			return nil, "", &fs.PathError{Op: "read", Path: f.Name(), Err: err}
		}
		if err != nil {
			reason = fmt.Sprintf("a direct read was refused (%v)", err)
		}
	}
	return nil, reason, nil
}

// sameFile returns the size of a file that was opened twice. A reason means that
// it cannot be read directly.
func sameFile(f, plain *os.File) (size int64, reason string, _ error) {
	info, err := f.Stat()
	if err != nil {
		return 0, "", err
	}
	other, err := plain.Stat()
	switch {
	case err != nil:
		return 0, "", err
	case !os.SameFile(info, other):
		return 0, "the file was replaced while it was opened", nil
	case info.Size() == 0:
		return 0, "the file is empty, so that direct reads cannot be proven", nil
	}
	return info.Size(), "", nil
}

// directOnly is a directFile without its way out: a proof by buffered reads
// proves nothing.
type directOnly struct{ d *directFile }

func (o directOnly) ReadAt(p []byte, off int64) (int, error) {
	return o.d.read(request{one: p, off: off}, 0)
}

// askAlignment asks the kernel what direct reads need. A reason means that it
// says they do not work at all.
func askAlignment(calls *directCalls, f *os.File) (Alignment, string) {
	var st unix.Statx_t
	err := calls.statx(int(f.Fd()), &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return Alignment{Memory: fallbackAlign, Offset: fallbackAlign}, ""
	}
	memory, offset := int64(st.Dio_mem_align), int64(st.Dio_offset_align)
	if st.Mask&unix.STATX_DIO_READ_ALIGN != 0 && st.Dio_read_offset_align != 0 {
		offset = int64(st.Dio_read_offset_align)
	}
	if memory == 0 || offset == 0 {
		return Alignment{}, "the file system does not support direct reads of this file"
	}
	if !isPowerOfTwo(memory) || !isPowerOfTwo(offset) || max(memory, offset) > maxDirectAlign {
		return Alignment{}, fmt.Sprintf("the kernel asks for an alignment of %d and %d bytes", memory, offset)
	}
	return Alignment{Memory: int(memory), Offset: int(offset)}, ""
}

// probe reads the same range directly and buffered, with a buffer address and
// an offset that keep the alignment and no more than that. The direct buffer
// starts as the complement of what must arrive, so that no byte can be right
// by chance. A reason means that the direct read was wrong.
func probe(direct, plain io.ReaderAt, align Alignment, size int64) (string, error) {
	block, off := int64(align.Offset), int64(0)
	if size >= 2*block {
		off = block
	}
	want := make([]byte, min(block, size-off))
	if err := readFull(plain, want, off); err != nil {
		return "", err
	}
	memory := int64(align.Memory)
	got := alignedBuffer(block+memory, 2*memory)[memory:]
	for i := range want {
		got[i] = ^want[i]
	}
	n, err := direct.ReadAt(got, off)
	switch {
	case err != nil && err != io.EOF:
		return "", err
	case n != len(want):
		return fmt.Sprintf("a direct read brought %d bytes instead of %d", n, len(want)), nil
	case !bytes.Equal(got[:n], want):
		return "a direct read brought other bytes than a buffered one", nil
	}
	return "", nil
}

// dropPages asks the kernel to forget the cached pages that a range touches. It
// is advice: a failure costs memory only.
func dropPages(f *os.File, off, n int64) {
	if n <= 0 {
		return // a length of zero would mean the whole file
	}
	page := int64(os.Getpagesize())
	off, n = alignDown(off, page), alignUp(off+n, page)-alignDown(off, page)
	advise(f, off, n, unix.FADV_DONTNEED)
}

// readNoFurther asks the kernel to read what it is asked for and no more: what it
// reads ahead is seldom the next expert, and stays in the cache. Reads by system
// calls keep their size with this advice; on a mapping it would make them single
// pages.
func readNoFurther(f *os.File) { advise(f, 0, 0, unix.FADV_RANDOM) }

func advise(f *os.File, off, n int64, advice int) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.Fadvise(int(fd), off, n, advice) })
}

func renameNoReplace(oldName, newName string) error {
	err := unix.Renameat2(unix.AT_FDCWD, oldName, unix.AT_FDCWD, newName, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP):
		return renameChecked(oldName, newName) // old kernels and some network file systems
	}
	return &os.LinkError{Op: "rename", Old: oldName, New: newName, Err: err}
}
