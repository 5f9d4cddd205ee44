package sim

import "outrider/layout"

// placement says how long each drive reads for each expert, in layer computes.
//
// With several drives a record is spread over them in proportion to their
// bandwidth if each piece has at least 256 KiB, as in a store; a smaller one lies
// whole on the drive that has the least for its bandwidth.
type placement struct {
	drives int
	times  []float64 // by ordinal and drive
}

// leastPiece is the smallest piece that a record is cut into (layout's rule).
const leastPiece = 256 << 10

func (p *placement) pieces(ordinal int) []float64 { return p.times[ordinal*p.drives:][:p.drives] }

// newPlacement lays the experts out. A layer computes for 1 unit of time: what an
// expert takes alone, times top-k, is ratio of them.
func newPlacement(shape layout.Shape, o Options) placement {
	p := placement{drives: max(len(o.Drives), 1)}
	mean := o.Ratio / float64(shape.TopK) // of the time of one expert read alone
	p.times = make([]float64, shape.Count()*p.drives)
	if len(o.Drives) == 0 {
		for i := range p.times {
			p.times[i] = mean
		}
		return p
	}
	var bandwidth float64
	for _, d := range o.Drives {
		bandwidth += d.BytesPerSecond
	}
	loads := make([]float64, p.drives)
	var alone float64 // seconds, summed
	for i := range shape.Count() {
		alone += p.place(p.pieces(i), loads, o, bandwidth)
	}
	// From seconds to layer computes.
	scale := mean / (alone / float64(shape.Count()))
	for i := range p.times {
		p.times[i] *= scale
	}
	return p
}

// place writes the seconds that each drive reads for one expert, and returns how
// long that takes with nothing else to read.
func (p *placement) place(times, loads []float64, o Options, bandwidth float64) (alone float64) {
	bytes := float64(o.RecordBytes)
	cut := true
	for _, d := range o.Drives {
		cut = cut && bytes*d.BytesPerSecond/bandwidth >= leastPiece
	}
	if !cut {
		best := 0
		for i, d := range o.Drives {
			if (loads[i]+bytes)/d.BytesPerSecond < (loads[best]+bytes)/o.Drives[best].BytesPerSecond {
				best = i
			}
		}
		loads[best] += bytes
		times[best] = o.Drives[best].Latency.Seconds() + bytes/o.Drives[best].BytesPerSecond
		return times[best]
	}
	for i, d := range o.Drives {
		times[i] = d.Latency.Seconds() + bytes/bandwidth
		alone = max(alone, times[i])
	}
	return alone
}
