package llama

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"
)

// reserve is a buffer type of ggml for tensors whose memory is somebody else's. What
// it allocates is address space that nobody may touch: a model's experts need not fit
// in memory, nor in what the system would promise, and a tensor that was given no
// place of its own ends the program instead of being read as zeros.
//
// It is ggml's own CPU buffer type but for the function that allocates: see
// ggml_backend_buffer_type in ggml-backend-impl.h.
type reserve struct {
	typ    *bufferType
	ranges [][]byte
	err    error
}

// bufferType is struct ggml_backend_buffer_type.
type bufferType struct {
	getName, allocBuffer, getAlignment, getMaxSize, getAllocSize, isHost uintptr
	device, context                                                      uintptr
}

// newReserve makes a buffer type. It must be reachable while the model lives.
func (l *Lib) newReserve() (*reserve, error) {
	cpu := *(**bufferType)(unsafe.Pointer(&[]uintptr{l.cpuType()}[0]))
	if err := cpu.check(); err != nil {
		return nil, err
	}
	r := &reserve{typ: new(*cpu)}
	r.typ.allocBuffer = allocCallback()
	reserves.add(uintptr(unsafe.Pointer(r.typ)), func(size uint64) uintptr { return r.alloc(l, size) })
	return r, nil
}

// check compares the structure with what its functions say.
func (b *bufferType) check() error {
	at := uintptr(unsafe.Pointer(b))
	for _, f := range []uintptr{b.getName, b.allocBuffer, b.getAlignment, b.isHost} {
		if f == 0 {
			return fmt.Errorf("ggml's CPU buffer type is laid out otherwise than in v%s", Version)
		}
	}
	name, _, _ := purego.SyscallN(b.getName, at)
	host, _, _ := purego.SyscallN(b.isHost, at)
	if s := cString(*(**byte)(unsafe.Pointer(&name))); s != "CPU" || host&1 != 1 {
		return fmt.Errorf("ggml's CPU buffer type is laid out otherwise than in v%s: it calls itself %q", Version, s)
	}
	return nil
}

// alloc answers 0, ggml's word for no memory, when it cannot.
func (r *reserve) alloc(l *Lib, size uint64) uintptr {
	mem, err := unix.Mmap(-1, 0, int(max(size, 1)), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		r.err = fmt.Errorf("reserve %d bytes of address space: %w", size, err)
		return 0
	}
	r.ranges = append(r.ranges, mem)
	return l.cpuBuffer(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), size)
}

// close gives the address space back, once the model is freed.
func (r *reserve) close() error {
	if r == nil {
		return nil
	}
	reserves.remove(uintptr(unsafe.Pointer(r.typ)))
	var first error
	for _, m := range r.ranges {
		if err := unix.Munmap(m); err != nil && first == nil {
			first = fmt.Errorf("llama: free address space: %w", err)
		}
	}
	r.ranges = nil
	return first
}
