package overlap

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

const (
	pageBytes = 4096
	hugeBytes = 2 << 20

	firstSlots = 64   // of a class, reserved at once
	mostSlots  = 4096 // of any later reservation
	// mostHuge bounds the slots of which the tail is in small pages and the rest in huge
	// ones: each is two of the kernel's mappings, of which a process has 65530.
	mostHuge = 8192
)

// slot is memory that reads land in, of one expert at a time.
type slot struct {
	class *class
	b     []byte
	id    layout.ExpertID
	shown bool // the pages lie at the expert's address
	torn  bool // part of them may, and the rest here
}

// class is the slots of one size.
type class struct {
	bytes, stride int64
	huge          int64 // bytes of each, from its start, in huge pages
	runs          []run
	free          []*slot
}

// run is slots side by side in one reservation.
type run struct {
	segment []byte // as it was mapped
	at      uint64 // address of the first slot
	slots   []slot
}

func newClass(bytes int64, huge bool) *class {
	c := &class{bytes: bytes, stride: bytes}
	if huge && bytes >= hugeBytes {
		c.huge = bytes / hugeBytes * hugeBytes
	}
	if c.huge > 0 {
		c.stride = roundUp(bytes, hugeBytes)
	}
	return c
}

// take returns a free slot.
func (c *class) take(u *userfaults) (*slot, error) {
	if len(c.free) == 0 {
		if err := c.grow(u); err != nil {
			return nil, fmt.Errorf("overlap: reserve slots of %d bytes: %w", c.bytes, err)
		}
	}
	s := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	return s, nil
}

// grow reserves more slots: as many again as there are.
func (c *class) grow(u *userfaults) error {
	have := 0
	for _, r := range c.runs {
		have += len(r.slots)
	}
	n := min(max(have, firstSlots), mostSlots)
	segment, body, err := reserve(int64(n) * c.stride)
	if err != nil {
		return err
	}
	if err := u.register(segment, registerWP); err != nil {
		return errors.Join(err, unix.Munmap(segment))
	}
	r := run{segment: segment, at: address(body), slots: make([]slot, n)}
	for i := n - 1; i >= 0; i-- { // so that the lowest is taken first
		b := body[int64(i)*c.stride:][:c.bytes:c.bytes]
		r.slots[i] = slot{class: c, b: b}
		c.free = append(c.free, &r.slots[i])
		if c.huge > 0 && have+i < mostHuge {
			_ = unix.Madvise(b[:c.huge], unix.MADV_HUGEPAGE) // else they are small ones
		}
	}
	c.runs = append(c.runs, r)
	return nil
}

// find returns the slot that an address lies in.
func (c *class) find(at uint64) *slot {
	for _, r := range c.runs {
		if at >= r.at && at < r.at+uint64(len(r.slots))*uint64(c.stride) {
			return &r.slots[(at-r.at)/uint64(c.stride)]
		}
	}
	return nil
}

// pieces are the parts of a slot, or of an expert of its size, that are one mapping.
func (c *class) pieces(b []byte) [2][]byte { return [2][]byte{b[:c.huge], b[c.huge:c.bytes]} }

func (c *class) close() error {
	var errs []error
	for _, r := range c.runs {
		errs = append(errs, unix.Munmap(r.segment))
	}
	c.runs, c.free = nil, nil
	return errors.Join(errs...)
}

// reserve maps address space that starts on 2 MiB.
func reserve(size int64) (segment, body []byte, err error) {
	segment, err = unix.Mmap(-1, 0, int(size)+hugeBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, err
	}
	_ = unix.Madvise(segment, unix.MADV_NOHUGEPAGE) // refused by kernels without huge pages
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(segment))) & (hugeBytes - 1))
	return segment, segment[skip:][:size:size], nil
}

func hugePagesAllowed() bool {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	return err == nil && !bytes.Contains(mode, []byte("[never]"))
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
