package prefetcher

import (
	"sync/atomic"
	"time"
)

// counters are read without a lock.
type counters struct {
	demands, joins, promoted, parkings atomic.Int64
	demandReads, demandBytes           atomic.Int64
	issued, speculativeBytes, late     atomic.Int64
	dropped, rejected                  atomic.Int64
	retries, checksumErrors, failed    atomic.Int64
	merged, cancelled, abandoned       atomic.Int64
	hedges, hedgesWon                  atomic.Int64
}

// Stats is what a prefetcher did. Counts are of experts, since New, unless said
// otherwise.
type Stats struct {
	Demands  int64 // calls of Demand
	Joins    int64 // of these, joined a read that was queued as a demand or under way
	Promoted int64 // of these, found their read queued for a forecast
	Parkings int64 // times that a demand had to wait for room

	DemandReads, DemandBytes int64 // begun for a demand
	Issued, SpeculativeBytes int64 // begun for a forecast

	// Of Issued: used in time; demanded before the read had ended; dropped from
	// the cache unused. The rest is in the cache or under way. Useful and Wasted
	// are the cache's counts.
	Useful, Late, Wasted int64
	Displaced            int64 // experts thrown out by a speculative read and then demanded
	Dropped              int64 // forecasts taken up, but not begun: late, replaced, or without a slot worth taking
	Rejected             int64 // candidates that Admission refused

	Retries        int64 // second tries of a block, or of a record after a wrong checksum
	ChecksumErrors int64 // parts whose checksum was wrong, healed ones included
	Failed         int64 // reads that ended in an error
	Merged         int64 // blocks read along with a neighbour, by one request for both
	Cancelled      int64 // of Issued, stopped under way since nobody wanted them any more
	Abandoned      int64 // reads given up since their lane did not answer

	// Hedges are blocks read a second time from their copy since the first read was
	// overdue or wrong, HedgedBytes their sum, HedgesWon the experts that came of it.
	Hedges, HedgesWon, HedgedBytes int64

	// BlockP50, BlockP99: time of one ReadAt. DemandP50, DemandP99: from Demand
	// to Arrived. At most 12.5 % off.
	BlockP50, BlockP99   time.Duration
	DemandP50, DemandP99 time.Duration

	InFlight int // experts queued as demands, parked or under way
	Flying   int // requests being read now
	Queued   int // forecasts queued
	Parked   int // demands that wait for room

	Mode       GovernorMode
	Usefulness float64 // 0 to 1
	Threshold  float64 // least expected saving of a speculative read
	Width      []int   // by lane, most speculative blocks read at once
	ReadSteps  float64 // time of one read in steps, 0 while not known

	Lanes []LaneStats
}

// LaneStats is what one lane did.
type LaneStats struct {
	Reads, Bytes   int64   // requests that ended, and what they asked for
	Failures       int64   // of single tries
	BytesPerSecond float64 // while busy, of late; 0 where not known
	Flying, Queued int     // requests being read, blocks that wait for it
	Silent         bool    // it has not answered for Options.SilentAfter
}

// Stats is a snapshot; the counts in it are of nearly the same moment.
func (p *Prefetcher) Stats() Stats {
	c, kept := &p.count, p.cache.Stats()
	s := Stats{
		Demands: c.demands.Load(), Joins: c.joins.Load(), Promoted: c.promoted.Load(), Parkings: c.parkings.Load(),
		DemandReads: c.demandReads.Load(), DemandBytes: c.demandBytes.Load(),
		Issued: c.issued.Load(), SpeculativeBytes: c.speculativeBytes.Load(),
		Useful: kept.Useful, Late: c.late.Load(), Wasted: kept.Wasted, Displaced: kept.Displaced,
		Dropped: c.dropped.Load(), Rejected: c.rejected.Load(),
		Merged: c.merged.Load(), Cancelled: c.cancelled.Load(), Abandoned: c.abandoned.Load(),
		Hedges: c.hedges.Load(), HedgesWon: c.hedgesWon.Load(),
		Retries: c.retries.Load(), ChecksumErrors: c.checksumErrors.Load(), Failed: c.failed.Load(),
	}
	q := p.blockTimes.quantiles(0.5, 0.99)
	s.BlockP50, s.BlockP99 = q[0], q[1]
	q = p.demandTimes.quantiles(0.5, 0.99)
	s.DemandP50, s.DemandP99 = q[0], q[1]

	p.mu.Lock()
	defer p.mu.Unlock()
	s.InFlight, s.Flying, s.Parked = len(p.mu.flights), p.mu.flying, len(p.mu.parked)
	s.Queued = p.mu.queue.Len(Near) + p.mu.queue.Len(Far)
	g := p.mu.governor
	s.Mode, s.Usefulness, s.Threshold = g.Mode(), g.Usefulness(), g.Threshold()
	if p.opt.NoSpeculation {
		s.Mode = SpeculationOff
	}
	for lane := range p.lanes {
		width := min(g.Width(lane), p.widthLocked(p.lanes[lane]))
		if p.opt.NoSpeculation {
			width = 0
		}
		s.Width = append(s.Width, width)
	}
	s.ReadSteps, s.HedgedBytes = p.mu.pace.ReadSteps(), p.mu.hedgedBytes
	for _, l := range p.lanes {
		s.Lanes = append(s.Lanes, LaneStats{
			Reads: l.reads, Bytes: l.bytes, Failures: l.failures, BytesPerSecond: l.rate.bytesPerSecond(),
			Flying: len(l.flying), Queued: len(l.demand) + len(l.ahead), Silent: l.silent,
		})
	}
	return s
}
