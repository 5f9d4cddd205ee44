package experts

// Stats is what a Cache holds and did. Bytes are charged bytes.
type Stats struct {
	TableStats
	Floor, Cycle  int64
	Leases        int   // not released yet
	Fills         int   // begun and not ended yet
	ReleasedTwice int64 // releases of a lease or a stray that was released before: a fault of the caller
	HugePages     bool  // slots are advised to be huge pages
	Locked        bool  // slots cannot be swapped out
	Closed        bool
}

// Stats is a snapshot of the counters.
func (c *Cache) Stats() Stats {
	huge := c.memory.HugePages()
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		TableStats: c.table.Stats(), Floor: c.floor, Cycle: c.cycle,
		Leases: c.leases, Fills: c.fills, ReleasedTwice: c.twice,
		HugePages: huge, Locked: c.locks != nil, Closed: c.closed,
	}
}

// Outcomes is a snapshot of how speculative reads turned out: cheaper than
// Stats, for callers who ask at every step.
func (c *Cache) Outcomes() Outcomes {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.table.Outcomes()
}
