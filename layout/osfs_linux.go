package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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

// directFile reads around the page cache.
type directFile struct {
	f     *os.File
	size  int64
	align Alignment
}

var _ File = (*directFile)(nil)

// openDirect opens a file for direct reads. No file and no error means that
// direct reads do not work here, for the reason given.
func openDirect(name string) (File, string, error) {
	f, err := directio.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		if refused(err) {
			return nil, fmt.Sprintf("the file system refuses direct reads (%v)", err), nil
		}
		return nil, "", err
	}
	d, reason, err := proveDirect(f, name)
	if d == nil {
		return nil, reason, errors.Join(err, f.Close())
	}
	return d, "", nil
}

// proveDirect finds an alignment with which a direct read of f brings the same
// bytes as a buffered one.
func proveDirect(f *os.File, name string) (*directFile, string, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if info.Size() == 0 {
		return nil, "the file is empty, so that direct reads cannot be proven", nil
	}
	plain, err := os.Open(name)
	if err != nil {
		return nil, "", err
	}
	defer plain.Close()

	first, reason := askAlignment(f)
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
		d := &directFile{f: f, size: info.Size(), align: align}
		reason, err = probe(d, plain, align, d.size)
		dropPages(plain, 0, 2*int64(align.Offset))
		if reason == "" && err == nil {
			return d, "", nil
		}
		if err != nil && !refused(err) {
			return nil, "", err
		}
		if err != nil {
			reason = fmt.Sprintf("a direct read was refused (%v)", err)
		}
	}
	return nil, reason, nil
}

// askAlignment asks the kernel what direct reads need. A reason means that it
// says they do not work at all.
func askAlignment(f *os.File) (Alignment, string) {
	var st unix.Statx_t
	mask := unix.STATX_DIOALIGN | unix.STATX_DIO_READ_ALIGN
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, mask, &st)
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

// ReadAt checks the alignment itself: some file systems accept reads that
// others refuse.
func (d *directFile) ReadAt(p []byte, off int64) (int, error) {
	if err := d.aligned(p, off); err != nil {
		return 0, err
	}
	return d.read(p, off)
}

func (d *directFile) aligned(p []byte, off int64) error {
	if d.align.check(p, off) {
		return nil
	}
	return fmt.Errorf("layout: read of %d bytes at %d of %s: %w: address needs a multiple of %d, offset and length of %d",
		len(p), off, d.f.Name(), ErrUnaligned, d.align.Memory, d.align.Offset)
}

func (d *directFile) read(p []byte, off int64) (int, error) {
	n, err := d.f.ReadAt(p, off)
	if err != nil && off >= 0 && off+int64(n) >= d.size {
		// Having met the end, os.File asks for the rest at an odd offset, which
		// some file systems refuse instead of reporting the end.
		err = io.EOF
	}
	return n, err
}

func (d *directFile) Size() int64       { return d.size }
func (d *directFile) Direct() Alignment { return d.align }
func (d *directFile) Engine() string    { return EnginePread }
func (d *directFile) Close() error      { return d.f.Close() }

// refused reports whether an error means that direct I/O is not possible here.
func refused(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EFAULT) || errors.Is(err, unix.EOPNOTSUPP)
}

// dropPages asks the kernel to forget the cached pages of a range. It is
// advice: a failure costs memory only.
func dropPages(f *os.File, off, n int64) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) { _ = unix.Fadvise(int(fd), off, n, unix.FADV_DONTNEED) })
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
