package experts

// TableStats counts what a Table holds and did. Bytes are charged bytes.
type TableStats struct {
	Budget    int64
	Used      int64 // resident, pinned, in flight, and on the way back to the system
	Peak      int64 // largest Used so far
	Pinned    int64
	InFlight  int64
	Evictable int64

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

// Stats is a snapshot of the counters.
func (t *Table) Stats() TableStats {
	c := &t.count
	return TableStats{
		Budget: t.budget, Used: c.live + c.held, Peak: c.peak,
		Pinned: c.pinned, InFlight: c.filling, Evictable: c.evictable,
		Residents: c.residents, Evictions: c.evictions,
		Useful: c.useful, Wasted: c.wasted, Displaced: c.displaced,
	}
}
