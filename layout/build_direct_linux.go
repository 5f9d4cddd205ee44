package layout

import (
	"errors"
	"fmt"
	"os"

	"github.com/ncw/directio"
	"golang.org/x/sys/unix"
)

var _ directWriter = osFS{}

// directProbe is how much of a lane is written to prove that direct writes work.
const directProbe = 1 << 20

// writeDirect reserves the lane's space, so that a full device shows at once and
// writes do not wait for each other to make the file longer.
func (osFS) writeDirect(f WriteFile, name string, size int64) (WriteFile, error) {
	plain, ok := f.(*os.File)
	if !ok {
		return nil, nil
	}
	switch err := reserve(plain, size); {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return nil, &os.PathError{Op: "reserve space for", Path: name, Err: fmt.Errorf("%d bytes: %w", size, err)}
	case err != nil:
		return nil, nil
	}
	d, err := directio.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, nil
	}
	if !provesDirectWrites(d, plain, size) {
		return nil, d.Close()
	}
	return d, nil
}

func reserve(f *os.File, size int64) error {
	for {
		if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != unix.EINTR {
			return err
		}
	}
}

// provesDirectWrites reads the start of a file and writes it back. Whether writes
// bring what they claim is shown by what is read back of every record.
func provesDirectWrites(d, plain *os.File, size int64) bool {
	if _, reason, err := sameFile(d, plain); reason != "" || err != nil {
		return false
	}
	align, reason := askAlignment(kernelCalls(), d)
	if reason != "" || align.span() > directWriteAlign {
		return false
	}
	memory := newWorkMemory(1, min(size, directProbe), directWriteAlign)
	defer memory.close()
	p := memory.take()
	if readFull(d, p, 0) != nil {
		return false
	}
	n, err := d.WriteAt(p, 0)
	return n == len(p) && err == nil
}

// startWriteback asks the kernel to begin to write what is dirty of a file, without
// waiting. It is advice: a failure costs time only.
func startWriteback(f WriteFile) {
	if plain, ok := f.(*os.File); ok {
		_ = unix.SyncFileRange(int(plain.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
}

// directRefused reports whether an error means that direct writes do not work.
func directRefused(err error) bool { return refused(err) }
