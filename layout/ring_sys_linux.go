package layout

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of the kernel's include/uapi/linux/io_uring.h.
const (
	uringOpReadv = 1
	uringOpRead  = 22

	uringEnterGetEvents = 1 << 0

	uringOffSQ   = 0
	uringOffSQEs = 0x10000000

	uringFeatSingleMmap = 1 << 0 // both rings in one mapping
	uringFeatNoDrop     = 1 << 1 // completions are never lost
	uringFeatRWCurPos   = 1 << 3 // came with the plain read operation, in 5.6
	uringFeatures       = uringFeatSingleMmap | uringFeatNoDrop | uringFeatRWCurPos
)

// The structures below are the kernel's, byte for byte.

type uringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     uringSQOffsets
	cq                                                                     uringCQOffsets
}

type uringSQOffsets struct {
	head, tail, mask, entries, flags, dropped, array, _ uint32
	_                                                   uint64
}

type uringCQOffsets struct {
	head, tail, mask, entries, overflow, cqes, flags, _ uint32
	_                                                   uint64
}

type uringSQE struct {
	opcode, flags uint8
	ioprio        uint16
	fd            int32
	off, addr     uint64
	len, rwFlags  uint32
	userData      uint64
	_             [3]uint64
}

type uringCQE struct {
	userData uint64
	res      int32
	flags    uint32
}

// uring is the bare ring: two queues in memory shared with the kernel.
// Both have one user, its reader. The kernel side is ordered by the atomic loads and
// stores of heads and tails.
type uring struct {
	fd    int
	rings []byte
	slab  []byte // of the SQEs

	sqHead, sqTail, cqHead, cqTail *uint32
	sqMask, cqMask                 uint32
	sqes                           []uringSQE
	cqes                           []uringCQE
}

// openUring makes a ring with room for depth operations.
func openUring(depth int) (*uring, error) {
	var p uringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, uintptr(depth), uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, refusedRing(errno)
	}
	u := &uring{fd: int(fd)}
	if err := u.mapQueues(&p); err != nil {
		return nil, errors.Join(err, u.unmap(), unix.Close(u.fd))
	}
	return u, nil
}

// refusedRing puts the kernel's refusal into words.
func refusedRing(errno unix.Errno) error {
	word := "the kernel refuses io_uring"
	switch errno {
	case unix.ENOSYS:
		word = "the kernel has no io_uring"
	case unix.EPERM, unix.EACCES:
		word = "io_uring is forbidden here, by sysctl kernel.io_uring_disabled or by the container's seccomp filter"
	case unix.ENOMEM:
		word = "no memory for io_uring: kernels before 5.12 count it against the limit of locked memory (ulimit -l)"
	}
	return fmt.Errorf("%w: %s: %w", ErrNoRing, word, errno)
}

func (u *uring) mapQueues(p *uringParams) error {
	if p.features&uringFeatures != uringFeatures {
		return fmt.Errorf("%w: the kernel's io_uring is older than 5.6 (features %#x)", ErrNoRing, p.features)
	}
	size := max(uintptr(p.sq.array)+uintptr(p.sqEntries)*4, uintptr(p.cq.cqes)+uintptr(p.cqEntries)*unsafe.Sizeof(uringCQE{}))
	var err error
	if u.rings, err = mapUring(u.fd, uringOffSQ, int(size)); err != nil {
		return err
	}
	if u.slab, err = mapUring(u.fd, uringOffSQEs, int(p.sqEntries)*int(unsafe.Sizeof(uringSQE{}))); err != nil {
		return err
	}
	word := func(at uint32) *uint32 { return (*uint32)(unsafe.Pointer(&u.rings[at])) }
	u.sqHead, u.sqTail, u.sqMask = word(p.sq.head), word(p.sq.tail), *word(p.sq.mask)
	u.cqHead, u.cqTail, u.cqMask = word(p.cq.head), word(p.cq.tail), *word(p.cq.mask)
	u.sqes = unsafe.Slice((*uringSQE)(unsafe.Pointer(&u.slab[0])), p.sqEntries)
	u.cqes = unsafe.Slice((*uringCQE)(unsafe.Pointer(&u.rings[p.cq.cqes])), p.cqEntries)
	// The queue is an array of places in sqes; ours is always in order.
	for i, array := 0, unsafe.Slice(word(p.sq.array), p.sqEntries); i < len(array); i++ {
		array[i] = uint32(i)
	}
	return nil
}

func mapUring(fd int, at int64, size int) ([]byte, error) {
	b, err := unix.Mmap(fd, at, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("%w: map its queues: %w", ErrNoRing, err)
	}
	return b, nil
}

// close frees the ring; no read of it may be in the kernel.
func (u *uring) close() error { return errors.Join(u.unmap(), unix.Close(u.fd)) }

// unmap gives the queues back; the ring must not be used any more.
func (u *uring) unmap() error {
	var errs []error
	for _, b := range [][]byte{u.slab, u.rings} {
		if b != nil {
			errs = append(errs, unix.Munmap(b))
		}
	}
	return errors.Join(errs...)
}

// push queues one read into buffers of at most maxRead bytes. The caller keeps
// iov and what it names alive, and knows that there is room.
func (u *uring) push(fd int, iov []unix.Iovec, off int64, id int) {
	sqe := uringSQE{
		opcode: uringOpReadv, fd: int32(fd), off: uint64(off),
		addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(iov)))), len: uint32(len(iov)), userData: uint64(id),
	}
	if len(iov) == 1 { // the plain read is cheaper
		sqe.opcode, sqe.addr, sqe.len = uringOpRead, uint64(uintptr(unsafe.Pointer(iov[0].Base))), uint32(iov[0].Len)
	}
	tail := *u.sqTail // only we write it
	u.sqes[tail&u.sqMask] = sqe
	atomic.StoreUint32(u.sqTail, tail+1)
}

// head counts the reads that the kernel has taken, modulo 2^32.
func (u *uring) head() uint32 { return atomic.LoadUint32(u.sqHead) }

// waiting is how many pushed reads the kernel has not taken.
func (u *uring) waiting() uint32 { return *u.sqTail - u.head() }

// unpush takes back the last pushed read, which the kernel has not taken, and
// returns its id. Nothing may be entering.
func (u *uring) unpush() int {
	tail := *u.sqTail - 1
	atomic.StoreUint32(u.sqTail, tail)
	return int(u.sqes[tail&u.sqMask].userData)
}

// enter asks the kernel to take submit pushed reads, and waits until least have ended
// that were not popped. It may return earlier.
func (u *uring) enter(submit, least uint32) error {
	flags := uintptr(0)
	if least > 0 {
		flags = uringEnterGetEvents
	}
	_, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(u.fd), uintptr(submit), uintptr(least), flags, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ended reports whether there is a completion to pop.
func (u *uring) ended() bool { return *u.cqHead != atomic.LoadUint32(u.cqTail) }

// pop takes one completion: the id that was pushed, and the bytes read or a
// negative errno.
func (u *uring) pop() (id uint64, res int32, ok bool) {
	head := *u.cqHead // only we write it
	if head == atomic.LoadUint32(u.cqTail) {
		return 0, 0, false
	}
	c := u.cqes[head&u.cqMask]
	atomic.StoreUint32(u.cqHead, head+1)
	return c.userData, c.res, true
}
