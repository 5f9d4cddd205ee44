package experts

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lockable is a Memory that can keep what it lends from being swapped out.
type lockable interface {
	// lock turns that on, before anything is lent.
	lock()
}

var (
	_ lockable = (*arena)(nil)
	_ lockable = (*FixedMemory)(nil)
)

// lockRoom checks budgets against the limit on locked memory.
type lockRoom struct {
	others int64 // locked by the process before
}

// lockSlots makes a memory lock its slots, if the budget may be locked.
func lockSlots(m Memory, budget int64) (*lockRoom, error) {
	l, ok := m.(lockable)
	if !ok {
		return nil, fmt.Errorf("experts: lock: slots of a %T cannot be locked, only those of the default memory and of FixedMemory: %w", m, errors.ErrUnsupported)
	}
	r := &lockRoom{}
	if text, err := readSmall(os.DirFS("/"), statusFile); err == nil {
		r.others, _ = keyedBytes(text, "VmLck:")
	}
	if err := r.check(budget); err != nil {
		return nil, err
	}
	l.lock()
	return r, nil
}

// check asks for the limit at the moment, since it may have been raised.
func (r *lockRoom) check(budget int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("experts: lock: limit on locked memory: %w", err)
	}
	need := uint64(budget) + uint64(r.others)
	if need <= limit.Cur || mayExceed(limit.Cur) {
		return nil
	}
	return fmt.Errorf("experts: lock: %w: %d bytes are needed (%d of them locked already), RLIMIT_MEMLOCK is %d; %s",
		ErrLockLimit, need, r.others, limit.Cur, lockRemedy)
}

const lockRemedy = "raise it (ulimit -l, LimitMEMLOCK= of systemd), grant CAP_IPC_LOCK, lower the budget, or do without lock"

// mayExceed tries whether the limit holds for this process at all: the
// capability counts in the system's first user namespace only, so that having
// it tells nothing. Nothing is committed for the trial.
func mayExceed(limit uint64) bool {
	b, err := unix.Mmap(-1, 0, int(limit)+hugeBytes, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return false
	}
	err = lockOnFault(b)
	return errors.Join(err, unix.Munmap(b)) == nil
}

// lockPages keeps the pages of a slot in memory from when they are first
// written; a kernel before 4.4 commits them at once.
func lockPages(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	err := lockOnFault(b)
	if err == unix.ENOSYS {
		err = unix.Mlock(b)
	}
	if err == nil {
		return nil
	}
	if err == unix.ENOMEM || err == unix.EPERM {
		err = fmt.Errorf("%w (%w)", ErrLockLimit, err)
	}
	return fmt.Errorf("experts: lock %d bytes: %w; %s", len(b), err, lockRemedy)
}

func lockOnFault(b []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MLOCK2, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MLOCK_ONFAULT)
	if errno != 0 {
		return errno
	}
	return nil
}

// unlockPages comes before release. It can fail only where the process has no
// more mappings to split, and release gives locked pages back too.
func unlockPages(b []byte) {
	if len(b) > 0 {
		_ = unix.Munlock(b)
	}
}
