package pagecache

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// windowBytes is how much of a file is mapped at a time: it bounds the address
// space, and the answer to one byte a page.
const windowBytes = 1 << 30

// mincore counts through a mapping, which brings no page by itself.
func mincore(f *os.File, size int64) (int64, error) {
	page := os.Getpagesize()
	answer := make([]byte, windowBytes/page)
	var pages int64
	for at := int64(0); at < size; at += windowBytes {
		n := int(min(windowBytes, size-at))
		view, err := unix.Mmap(int(f.Fd()), at, n, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return 0, os.NewSyscallError("mmap", err)
		}
		resident := answer[:(n+page-1)/page]
		err = mincoreCall(view, resident)
		if e := unix.Munmap(view); err == nil {
			err = e
		}
		if err != nil {
			return 0, os.NewSyscallError("mincore", err)
		}
		for _, b := range resident {
			pages += int64(b & 1) // the other bits mean nothing
		}
	}
	return pages, nil
}

// mincoreCall is here because x/sys/unix has no wrapper for it.
func mincoreCall(view, resident []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(view))),
		uintptr(len(view)), uintptr(unsafe.Pointer(unsafe.SliceData(resident))))
	runtime.KeepAlive(resident)
	if errno != 0 {
		return errno
	}
	return nil
}
