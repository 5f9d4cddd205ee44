package main

import (
	"fmt"
	"slices"
)

// spread is the median of some figures, the least and the most. The zero value: none.
type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	N      int     `json:"n"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	s := spread{Median: v[len(v)/2], Least: v[0], Most: v[len(v)-1], N: len(v)}
	if len(v)%2 == 0 {
		s.Median = (v[len(v)/2-1] + v[len(v)/2]) / 2
	}
	return s
}

// String is "1.31 (1.28–1.34)", of one round without the range, of none "".
func (s spread) String() string {
	switch s.N {
	case 0:
		return ""
	case 1:
		return short(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", short(s.Median), short(s.Least), short(s.Most))
}

// short has three digits that count, or more before the point.
func short(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// row is an arm at a budget, over the rounds.
type row struct {
	Purpose     string `json:"purpose"`
	Budget      string `json:"budget,omitempty"`
	Arm         string `json:"arm"`
	LimitBytes  int64  `json:"limit_bytes,omitempty"`
	Rate        spread `json:"tokens_per_s"`
	OfResident  spread `json:"of_resident,omitzero"`
	OfMmap      spread `json:"of_mmap,omitzero"`
	OfDemand    spread `json:"of_demand,omitzero"`
	OfBound     spread `json:"of_bound,omitzero"` // time, of what resident compute and raw reads allow
	Hits        spread `json:"hits,omitzero"`
	Bytes       spread `json:"bytes_per_token,omitzero"`
	StallMicros spread `json:"stall_us_per_token,omitzero"`
	PeakBytes   int64  `json:"peak_bytes"` // the most of all rounds
	PeakAllowed int64  `json:"peak_allowed,omitempty"`
}

// bound is the least time of a token: it cannot be computed faster than with all
// weights in memory, nor can its bytes be read faster than the drive gives them.
func bound(residentRate, bytesPerToken, rawBytesPerSecond float64) float64 {
	var compute, read float64
	if residentRate > 0 {
		compute = 1 / residentRate
	}
	if rawBytesPerSecond > 0 {
		read = bytesPerToken / rawBytesPerSecond
	}
	return max(compute, read)
}

// rowOf sums up the rounds of an arm.
func (f *findings) rowOf(purpose, budget, arm string) row {
	r := row{Purpose: purpose, Budget: budget, Arm: arm}
	var v struct{ rate, resident, mmap, demand, bound, hits, bytes, stall []float64 }
	for i := range f.Runs {
		e := &f.Runs[i]
		if e.Purpose != purpose || e.Arm != arm || e.Budget != budget || e.Result == nil || e.Round >= f.Rounds {
			continue
		}
		v.rate = append(v.rate, e.rate())
		v.resident = f.ratio(v.resident, e, resident)
		r.LimitBytes, r.PeakBytes = e.Limit, max(r.PeakBytes, e.Result.PeakBytes)
		if !streams(arm) {
			continue
		}
		v.mmap = f.ratio(v.mmap, e, mmap)
		if arm == outrider {
			v.demand = f.ratio(v.demand, e, demand)
		}
		r.PeakAllowed = f.allowed(e)
		cost := e.Result.Decode
		if purpose == prefill {
			cost = e.Result.Prompt
		}
		v.hits, v.bytes, v.stall = append(v.hits, cost.Hits), append(v.bytes, cost.BytesPerToken), append(v.stall, cost.StallPerToken)
		least := bound(f.rateOf(e, resident), cost.BytesPerToken, f.rawAround(i))
		if purpose == speed && least > 0 && e.rate() > 0 {
			v.bound = append(v.bound, 1/e.rate()/least)
		}
	}
	r.Rate, r.OfResident, r.OfMmap, r.OfDemand = spreadOf(v.rate), spreadOf(v.resident), spreadOf(v.mmap), spreadOf(v.demand)
	r.OfBound, r.Hits, r.Bytes, r.StallMicros = spreadOf(v.bound), spreadOf(v.hits), spreadOf(v.bytes), spreadOf(v.stall)
	return r
}

// allowed is the memory that a streaming arm may have.
func (f *findings) allowed(e *entry) int64 {
	return f.Sizes.DenseBytes + e.Result.BudgetBytes + peakExtra
}

// ratio adds the run's rate over that of another arm in the same round.
func (f *findings) ratio(to []float64, e *entry, arm string) []float64 {
	if other := f.rateOf(e, arm); other > 0 && e.Arm != arm {
		return append(to, e.rate()/other)
	}
	return to
}

// rateOf is that of an arm beside this run, 0 if it has none.
func (f *findings) rateOf(e *entry, arm string) float64 {
	for i := range f.Runs {
		o := &f.Runs[i]
		if o.Purpose == e.Purpose && o.Round == e.Round && o.Budget == e.Budget && o.Arm == arm {
			return o.rate()
		}
	}
	return 0
}

// rawAround is the mean of the raw slices just before and behind a run, 0 without.
func (f *findings) rawAround(i int) float64 {
	var sum float64
	var n int
	for _, at := range []int{i - 1, i + 1} {
		if at >= 0 && at < len(f.Runs) && f.Runs[at].Raw != nil {
			sum += f.Runs[at].Raw.BytesPerSecond
			n++
		}
	}
	return sum / float64(max(n, 1))
}

// raw is the rate of all raw slices, and whether all were direct.
func (f *findings) raw() (s spread, direct bool) {
	var rates []float64
	direct = true
	for _, e := range f.Runs {
		if e.Raw != nil {
			rates = append(rates, e.Raw.BytesPerSecond)
			direct = direct && e.Raw.Direct
		}
	}
	return spreadOf(rates), direct
}

// drift is the rate of the first arm repeated last over its first; 0: not measured.
func (f *findings) drift() float64 {
	var first, last float64
	for i := range f.Runs {
		e := &f.Runs[i]
		if e.Purpose != speed || e.Arm != resident {
			continue
		}
		if e.Round == f.Rounds {
			last = e.rate()
		} else if first == 0 {
			first = e.rate()
		}
	}
	if first == 0 {
		return 0
	}
	return last / first
}
