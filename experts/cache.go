package experts

import (
	"fmt"
	"log/slog"
	"sync"

	"outrider/layout"
)

// Options describe a Cache. Shape, Bytes and BudgetBytes are needed.
type Options struct {
	Shape layout.Shape
	// Bytes is what one expert of each layer is charged, and the size of its
	// slot: a multiple of 4096, at least the largest Placement.Bytes of the
	// layer (Source.SlotBytes). One a layer.
	Bytes []int64
	// BudgetBytes bounds all slots together: resident, pinned and in flight.
	// The cache's own books (about 40 bytes for each expert of the model) are
	// not in it.
	BudgetBytes int64
	// Policy ranks victims; nil ranks by recency.
	Policy Policy
	// Protect is for how many steps a speculative read may not throw out an
	// expert that a demand used: 1 means in the current step only. 0 protects
	// none.
	Protect int
	// Memory lends the slots; nil is an arena of huge pages on Linux and the
	// Go heap elsewhere. The cache closes it, unless New fails.
	Memory Memory
	// Lock keeps slots from being swapped out, from when they are lent until
	// they are given back (mlock2 of Linux, on fault, so that it commits
	// nothing). New and SetBudget refuse a budget that the process may not lock:
	// ErrLockLimit. With another Memory than the default one or a FixedMemory,
	// and on other systems, New fails with errors.ErrUnsupported.
	Lock bool
	// Poison overwrites slots with 0xDB when their content dies, so that a
	// reader that outlived its lease is caught. For tests: it costs a write of
	// each evicted byte.
	Poison bool
	// Freed is called, with no lock held, when room for a new fill may have
	// come about: a last lease ended, a fill was aborted or committed without
	// a lease, a stray was released, memory is back with the system, the budget
	// was raised. It is called often and must be quick; it may call the cache.
	// nil: not called.
	//
	// A wake-up may come between ErrNoRoom and the moment its receiver starts
	// to wait: count the calls, and compare the count from before Begin.
	Freed func()
	// Logger is told of an unusually small budget and of failures while
	// unmapping; nil is silent.
	Logger *slog.Logger
}

// Cache holds expert weights in memory within one hard budget. It knows no
// disk: whoever reads asks for a slot with Begin, fills it and commits. All
// methods may be called from several goroutines, and none waits for a slot.
type Cache struct {
	shape  layout.Shape
	floor  int64
	cycle  int64
	memory Memory
	locks  *lockRoom // nil: slots are not locked
	poison bool
	freed  func()
	log    *slog.Logger

	mu       sync.Mutex // guards all below; never held over Memory, Freed or the log
	table    *Table
	slots    []*slot // by ordinal; nil if absent
	spare    []*slot
	tickets  *ticket                  // free ones
	occupied map[layout.ExpertID]bool // fixed addresses that a stray holds
	leases   int
	fills    int
	working  int   // goroutines that use memory off the lock
	twice    int64 // leases and strays released twice
	closed   bool
	unmapped bool
}

// slot is the memory of one expert, from Begin until it is given back.
type slot struct {
	cache *Cache
	id    layout.ExpertID
	fill  uint64 // generation: counts fills that ended, and swaps
	buf   []byte
	parts []layout.Part
}

// New makes an empty cache. A budget below the floor is ErrBelowFloor; one
// below the token cycle is warned about.
func New(o Options) (*Cache, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	table, err := NewTable(TableOptions{
		Shape: o.Shape, BudgetBytes: o.BudgetBytes, Policy: o.Policy, Protect: o.Protect,
		Bytes: func(layer int) int64 { return o.Bytes[layer] },
	})
	if err != nil {
		return nil, err
	}
	c := &Cache{
		shape: o.Shape, floor: table.floor, poison: o.Poison, freed: o.Freed, log: o.Logger,
		table: table, slots: make([]*slot, o.Shape.Count()), occupied: map[layout.ExpertID]bool{},
	}
	for _, b := range o.Bytes {
		c.cycle += b * int64(o.Shape.TopK)
	}
	if err := c.checkFloor(o.BudgetBytes); err != nil {
		return nil, err
	}
	if err := c.takeMemory(&o); err != nil {
		return nil, err
	}
	c.warnBelowCycle(o.BudgetBytes)
	return c, nil
}

// takeMemory makes a memory unless one is given, and locks it where asked to.
func (c *Cache) takeMemory(o *Options) (err error) {
	if c.memory = o.Memory; c.memory == nil {
		if c.memory, err = newMemory(o.Bytes, o.BudgetBytes, o.Shape.Count()); err != nil {
			return err
		}
	}
	if !o.Lock {
		return nil
	}
	if c.locks, err = lockSlots(c.memory, o.BudgetBytes); err != nil && o.Memory == nil {
		_ = c.memory.Close()
	}
	return err
}

func (o *Options) validate() error {
	if err := o.Shape.Validate(); err != nil {
		return fmt.Errorf("experts: %w", err)
	}
	if len(o.Bytes) != o.Shape.Layers {
		return fmt.Errorf("experts: %d slot sizes for %d layers, want one a layer", len(o.Bytes), o.Shape.Layers)
	}
	for l, b := range o.Bytes {
		if b < pageBytes || b > maxSlotBytes || b%pageBytes != 0 {
			return fmt.Errorf("experts: layer %d has slots of %d bytes, want a multiple of %d up to %d", l, b, pageBytes, int64(maxSlotBytes))
		}
	}
	return nil
}

func (c *Cache) checkFloor(budget int64) error {
	if budget >= c.floor {
		return nil
	}
	return fmt.Errorf("experts: %w: %d bytes given, one layer of one token needs %d; raise the budget to at least that",
		ErrBelowFloor, budget, c.floor)
}

func (c *Cache) warnBelowCycle(budget int64) {
	if budget < c.cycle && c.log != nil {
		c.log.Warn("experts: budget is below one token's cycle: few experts will be found again",
			"budget_bytes", budget, "cycle_bytes", c.cycle, "floor_bytes", c.floor)
	}
}

// Floor is the budget in bytes that one layer of one token needs.
func (c *Cache) Floor() int64 { return c.floor }

// Cycle is the bytes that one token touches over all layers.
func (c *Cache) Cycle() int64 { return c.cycle }

// BelowCycle reports whether the present budget is smaller than Cycle.
func (c *Cache) BelowCycle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.budget < c.cycle
}

// Pin demands an expert. If the outcome is Resident the lease is valid and the
// caller must release it; else the lease is the zero Lease and the expert is
// to be read (Miss), or waited for (Filling, FillingLate). It does not
// allocate in the steady state.
func (c *Cache) Pin(id layout.ExpertID) (Lease, Outcome) {
	if !c.shape.Contains(id) {
		return Lease{}, Refused
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return Lease{}, Refused
	}
	out := c.table.Use(id)
	if !out.Resident() {
		return Lease{}, out
	}
	c.table.Pin(id)
	return c.leaseLocked(c.slots[c.shape.Ordinal(id)]), out
}

// Resident reports whether an expert is in memory now. It is no demand and
// pins nothing, so the answer may be old on return.
func (c *Cache) Resident(id layout.ExpertID) bool {
	if !c.shape.Contains(id) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Resident(id)
}

// Lapse drops an expert that was brought by a speculative read and never used since,
// and reports whether it was one. Its memory goes back to the system.
func (c *Cache) Lapse(id layout.ExpertID) bool {
	if !c.shape.Contains(id) {
		return false
	}
	c.mu.Lock()
	if c.closed || !c.table.Lapse(id) {
		c.mu.Unlock()
		return false
	}
	d := c.dropLocked([]layout.ExpertID{id})
	c.mu.Unlock()
	c.settle(d)
	return true
}

// Step tells that one layer was executed: the clock of Options.Protect.
func (c *Cache) Step() {
	c.mu.Lock()
	c.table.Step()
	c.mu.Unlock()
}

// Invalidate fetches the layer's keys from the policy again. Policy.Keys runs
// on the caller's goroutine, with the cache's lock held.
func (c *Cache) Invalidate(layer int) {
	if layer < 0 || layer >= c.shape.Layers {
		return
	}
	c.mu.Lock()
	c.table.Invalidate(layer)
	c.mu.Unlock()
}

// SetBudget changes the budget for good. Memory over a lowered budget is given
// back to the system: what nobody holds now, the rest as leases and fills end.
// Below Floor it is ErrBelowFloor, above what may be locked ErrLockLimit, and
// nothing changes; after Close, ErrClosed.
func (c *Cache) SetBudget(bytes int64) error {
	if err := c.checkFloor(bytes); err != nil {
		return err
	}
	if c.locks != nil {
		if err := c.locks.check(bytes); err != nil {
			return err
		}
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	raised := bytes > c.table.budget
	d := c.dropLocked(c.table.SetBudget(bytes))
	c.mu.Unlock()
	c.warnBelowCycle(bytes)
	if !c.settle(d) && raised {
		c.after(false)
	}
	return nil
}

// Slots is the range of address space that holds the slots of the budget that New was
// given, and how far apart they begin; nil where slots lie here and there: with a Memory
// of the caller's, and on systems other than Linux. Only what a lease is held of may be
// read. Valid until the cache is closed and the last lease released.
func (c *Cache) Slots() (base []byte, stride int64) {
	if m, ok := c.memory.(interface{ slots() ([]byte, int64) }); ok {
		return m.slots()
	}
	return nil, 0
}

// Close refuses further pins and fills and gives back what nobody holds.
// Leases stay valid until released; fills in flight must still end, and strays
// be released. The rest is unmapped when the last of them ended; an error of
// that is returned here if it happens here, and logged otherwise. A second Close
// is harmless.
func (c *Cache) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	d := c.dropLocked(c.table.SetBudget(0))
	c.mu.Unlock()
	c.give(&d)
	c.mu.Lock()
	c.endDropLocked(&d)
	unmap := c.unmapLocked()
	c.mu.Unlock()
	if unmap {
		return c.memory.Close()
	}
	return nil
}

// after does what may not happen under the lock: unmap, and tell that room may
// have come about.
func (c *Cache) after(unmap bool) {
	if unmap {
		if err := c.memory.Close(); err != nil && c.log != nil {
			c.log.Error("experts: cannot unmap the slots", "error", err)
		}
	}
	if c.freed != nil {
		c.freed()
	}
}
