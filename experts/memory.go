package experts

import (
	"fmt"
	"sync"
	"unsafe"

	"outrider/layout"
)

const (
	pageBytes = 4096
	hugeBytes = 2 << 20
)

// Memory lends the buffers that expert weights lie in. A buffer starts at an
// address that is a multiple of 4096, is outside of the garbage collector's
// reach or pinned to its address for as long as it is lent, and has exactly
// the bytes asked for, with any content. Buffers must be handed back as they
// were lent, not resliced. Methods may be called from several goroutines, and
// a buffer may be taken for an expert while the expert's last one is still on
// its way back: the cache gives back what a Begin evicted before it takes.
// Unless Fixed, an expert may have several buffers at once: spares, and those
// of abandoned fills. Close comes when no other call is running or will come.
type Memory interface {
	// Take lends a buffer for an expert. No more than bytes of it may ever be
	// committed.
	Take(id layout.ExpertID, bytes int64) ([]byte, error)
	// Move turns the buffer of an evicted expert into one for another, without
	// ever committing more than the larger of the two. If it fails, the old
	// buffer was given back.
	Move(b []byte, id layout.ExpertID, bytes int64) ([]byte, error)
	// Give takes a buffer back; its memory is with the system on return.
	Give(b []byte)
	// HugePages reports whether buffers are advised to be huge pages.
	HugePages() bool
	// Fixed reports whether an expert has one address, so that it cannot have
	// two buffers at once. It never changes.
	Fixed() bool
	// Close unmaps everything.
	Close() error
}

// Stacked is a Memory in which each expert has one address for the whole run: those of
// a layer lie in one range, in the order of their indices and at the same distance.
// FixedMemory is one.
type Stacked interface {
	Memory
	// Stack is the range of a layer; expert i begins at i times StackStride. It stays
	// until Close.
	Stack(layer int) []byte
	// StackStride is a multiple of 4096, and no less than the layer's slot bytes.
	StackStride(layer int) int64
}

var _ Memory = (*heapMemory)(nil)

// NewHeapMemory lends page-aligned slices of the Go heap, one an expert, made
// on demand and left to the garbage collector when given back: process memory
// may exceed what is lent until it ran. It works on every system and is what
// New uses where there is no arena; tests take it to let the race detector see
// the weights.
func NewHeapMemory() Memory { return &heapMemory{} }

type heapMemory struct{}

func (*heapMemory) Take(_ layout.ExpertID, bytes int64) ([]byte, error) {
	if bytes < 1 || bytes > maxSlotBytes || int64(int(bytes)) != bytes {
		return nil, fmt.Errorf("experts: heap memory: cannot lend %d bytes", bytes)
	}
	b := make([]byte, bytes+pageBytes-1)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (pageBytes - 1))
	return b[skip:][:bytes:bytes], nil
}

func (m *heapMemory) Move(b []byte, id layout.ExpertID, bytes int64) ([]byte, error) {
	if int64(len(b)) == bytes {
		return b, nil
	}
	return m.Take(id, bytes)
}

func (*heapMemory) Give([]byte)     {}
func (*heapMemory) HugePages() bool { return false }
func (*heapMemory) Fixed() bool     { return false }
func (*heapMemory) Close() error    { return nil }

// slotPlan says how the slots of an arena lie.
type slotPlan struct {
	stride int64 // address space of a slot
	slots  int   // of a segment
	pages  pagePlan
}

type pagePlan uint8

const (
	// smallPages: slots of different sizes, all below 2 MiB or very many. Huge
	// pages would commit more than a small record is charged.
	smallPages pagePlan = iota
	// hugeDense: slots of one size, one after the other, all in huge pages.
	hugeDense
	// hugePrefix: each slot starts on 2 MiB; what a record has in whole 2 MiB
	// is in huge pages, its tail in small ones.
	hugePrefix
)

// maxPrefixSlots bounds hugePrefix: each slot whose tail is advised otherwise
// than its prefix costs two kernel mappings, of which a process has 65530.
const maxPrefixSlots = 8192

// planSlots chooses for layers with these slot bytes and a budget.
func planSlots(bytes []int64, budget int64, experts int) slotPlan {
	small, large := bytes[0], bytes[0]
	for _, b := range bytes {
		small, large = min(small, b), max(large, b)
	}
	p := slotPlan{stride: large, slots: int(max(1, min(budget/small, int64(experts))))}
	few := p.slots <= maxPrefixSlots
	switch {
	case small == large && (large < hugeBytes || large%hugeBytes == 0 || !few):
		p.pages = hugeDense
	case large >= hugeBytes && few:
		p.pages, p.stride = hugePrefix, roundUp(large, hugeBytes)
	}
	return p
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

// poison overwrites memory that nobody may read any more.
func poison(b []byte) { overwrite(b, poisonByte) }

func overwrite(b []byte, with byte) {
	if len(b) == 0 {
		return
	}
	b[0] = with
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

const poisonByte = 0xDB

// freeSlots is a stack of slots, so that the slot used last is used next.
type freeSlots struct {
	mu    sync.Mutex
	stack [][]byte
}

func (f *freeSlots) pop() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.stack)
	if n == 0 {
		return nil
	}
	b := f.stack[n-1]
	f.stack = f.stack[:n-1]
	return b
}

func (f *freeSlots) push(b ...[]byte) {
	f.mu.Lock()
	f.stack = append(f.stack, b...)
	f.mu.Unlock()
}
