package experts

// Stats is what a Cache holds and did. Bytes are charged bytes.
type Stats struct {
	TableStats
	Floor, Cycle  int64
	Leases        int   // not released yet
	Fills         int   // neither committed nor aborted yet
	ReleasedTwice int64 // releases of a lease that was released before: a fault of the caller
	HugePages     bool  // slots are advised to be huge pages
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
		HugePages: huge, Closed: c.closed,
	}
}
