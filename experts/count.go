package experts

// TableStats counts what a Table holds and did. Bytes are charged bytes.
type TableStats struct {
	Budget    int64
	Used      int64 // resident, pinned, in flight, astray, and on the way back to the system
	Peak      int64 // largest Used so far
	Pinned    int64
	InFlight  int64
	Evictable int64
	// StrayBytes is memory that fills left behind while something may still
	// write into it, and Strays how many pieces that is.
	StrayBytes int64
	Strays     int

	Residents int   // experts in memory, pinned or not
	Evictions int64 // experts dropped, for whatever reason
	Useful    int64 // speculative reads that were resident at their first use
	Wasted    int64 // speculative reads dropped unused
	Displaced int64 // thrown out for a speculative read and demanded within one cycle of the layers, before being loaded again
}

type counters struct {
	live        int64 // charged for experts
	held        int64 // charged for memory that is on its way back to the system
	peak        int64
	stray       int64 // charged for memory that fills left behind
	strays      int
	pinned      int64
	filling     int64
	speculative int64 // part of filling that no demand waits for
	evictable   int64
	residents   int
	evictions   int64
	useful      int64
	wasted      int64
	displaced   int64
}

// Outcomes counts how speculative reads turned out: those fields of TableStats
// that are asked for at every step.
type Outcomes struct {
	Useful    int64
	Displaced int64
}

// Outcomes is a snapshot of the two counters.
func (t *Table) Outcomes() Outcomes {
	return Outcomes{Useful: t.count.useful, Displaced: t.count.displaced}
}

// used is all that is charged.
func (t *Table) used() int64 { return t.count.live + t.count.held + t.count.stray }

// Stats is a snapshot of the counters.
func (t *Table) Stats() TableStats {
	c := &t.count
	return TableStats{
		Budget: t.budget, Used: t.used(), Peak: c.peak, StrayBytes: c.stray, Strays: c.strays,
		Pinned: c.pinned, InFlight: c.filling, Evictable: c.evictable,
		Residents: c.residents, Evictions: c.evictions,
		Useful: c.useful, Wasted: c.wasted, Displaced: c.displaced,
	}
}
