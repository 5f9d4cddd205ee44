package overlap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/userfaultfd.h, the same on all machines that have it.
const (
	userModeOnly = 1 // UFFD_USER_MODE_ONLY: needs no privilege

	apiVersion  = 0xAA
	featureWP   = 1 << 0
	featureMove = 1 << 16

	ioctlAPI      = 0xc018aa3f
	ioctlRegister = 0xc020aa00
	ioctlWake     = 0x8010aa02
	ioctlCopy     = 0xc028aa03
	ioctlZeros    = 0xc020aa04
	ioctlMove     = 0xc028aa05

	registerMissing = 1 << 0
	registerWP      = 1 << 1

	moveDontWake  = 1 << 0
	moveWithHoles = 1 << 1

	eventFault   = 0x12
	messageBytes = 32
	addressAt    = 16 // of a fault, in its message
)

// userfaults is a userfaultfd. Methods may be called from several goroutines, and not
// once it is closed.
type userfaults struct {
	fd   uintptr
	file *os.File // of fd, non-blocking: it waits in Go's poller
	call func(fd, request uintptr, args *[5]uint64) error
}

// openUserfaults asks the kernel. Errors are ErrUnavailable.
func openUserfaults() (*userfaults, error) {
	fd, _, no := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK|userModeOnly, 0, 0)
	if no != 0 {
		return nil, fmt.Errorf("%w: this kernel, or the container, refuses userfaultfd: %w", ErrUnavailable, no)
	}
	if err := control(fd, ioctlAPI, &[5]uint64{apiVersion, featureWP | featureMove}); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: userfaultfd of this kernel does not move pages, which needs Linux 6.8: %w", ErrUnavailable, err), unix.Close(int(fd)))
	}
	// Not earlier: before the handshake it polls as broken, which Go's poller remembers.
	return &userfaults{fd, os.NewFile(fd, "userfaultfd"), control}, nil
}

func (u *userfaults) ioctl(request uintptr, args *[5]uint64) error {
	return u.call(u.fd, request, args)
}

// control passes a structure of up to five 64-bit fields; the kernel takes what it needs.
func control(fd, request uintptr, args *[5]uint64) error {
	if _, _, no := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(args))); no != 0 {
		return no
	}
	return nil
}

// register lets threads wait that touch what is not there (registerMissing), or lets
// pages be moved there and no more (registerWP, of which no use is made).
func (u *userfaults) register(b []byte, mode uint64) error {
	if err := u.ioctl(ioctlRegister, &[5]uint64{address(b), uint64(len(b)), mode}); err != nil {
		return fmt.Errorf("%w: userfaultfd does not take memory of this kind: %w", ErrUnavailable, err)
	}
	return nil
}

// patience is how often a page is tried that somebody looks at: a read that is done may
// hold it for a moment longer.
const patience = 100

// move takes pages of one range to another of the same length, in which there are none;
// gaps stay gaps. Both lie in one mapping each. n is how far it came.
func (u *userfaults) move(to, from []byte, mode uint64) (n int, err error) {
	for tries := 0; n < len(from); tries++ {
		args := [5]uint64{address(to[n:]), address(from[n:]), uint64(len(from) - n), mode | moveWithHoles}
		err := u.ioctl(ioctlMove, &args)
		if moved := int64(args[4]); moved > 0 {
			n, tries = n+int(moved), 0
			continue
		}
		again := err == unix.EAGAIN || err == unix.EINTR || err == unix.EBUSY
		if !again || tries == patience {
			return n, err
		}
		runtime.Gosched()
	}
	return n, nil
}

// show moves pages to where threads may wait for them, and wakes these. What somebody
// goes on looking at is copied, a piece at a time.
func (u *userfaults) show(to, from []byte) error {
	for len(from) > 0 {
		n, err := u.move(to, from, 0)
		to, from = to[n:], from[n:]
		if err != nil && err != unix.EBUSY {
			return err
		}
		if err == nil {
			continue
		}
		piece := min(len(from), hugeBytes)
		args := [5]uint64{address(to), address(from), uint64(piece)}
		if err := u.ioctl(ioctlCopy, &args); err != nil {
			return err
		}
		release(from[:piece])
		to, from = to[piece:], from[piece:]
	}
	return nil
}

// hide moves pages out again.
func (u *userfaults) hide(to, from []byte) error {
	_, err := u.move(to, from, moveDontWake)
	return err
}

// zeros maps zeros where there are no pages, and wakes who waits there. It reports
// whether there were any such places.
func (u *userfaults) zeros(b []byte) (any bool, err error) {
	for len(b) > 0 {
		args := [5]uint64{address(b), uint64(len(b)), 0, 0}
		err := u.ioctl(ioctlZeros, &args)
		switch n := int64(args[3]); {
		case n > 0:
			any, b = true, b[n:]
		case err == unix.EEXIST:
			_ = u.wake(b[:pageBytes])
			b = b[pageBytes:]
		case err != unix.EAGAIN && err != unix.EINTR:
			return any, err
		}
	}
	return any, nil
}

// wake lets who waits there look again.
func (u *userfaults) wake(b []byte) error {
	return u.ioctl(ioctlWake, &[5]uint64{address(b), uint64(len(b))})
}

// wait calls f with the address of each fault until the file is closed. The faults are
// taken with lock held: one that was answered before is not told then.
func (u *userfaults) wait(lock func() (unlock func()), f func(at uintptr)) {
	raw, err := u.file.SyscallConn()
	if err != nil {
		return
	}
	var message [messageBytes]byte
	ended := false
	next := func(fd uintptr) bool {
		defer lock()()
		n, err := unix.Read(int(fd), message[:])
		if err != nil || n < messageBytes {
			ended = err != unix.EAGAIN && err != unix.EINTR
			return err != unix.EAGAIN
		}
		if message[0] == eventFault {
			f(uintptr(binary.NativeEndian.Uint64(message[addressAt:])))
		}
		return true
	}
	for !ended && raw.Read(next) == nil {
	}
}

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// release gives the pages of a range back to the system.
func release(b []byte) {
	if len(b) > 0 {
		_ = unix.Madvise(b, unix.MADV_DONTNEED)
	}
}
