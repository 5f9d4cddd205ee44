package main

import (
	"fmt"
	"slices"
	"strings"
)

// summary is what comes out of the runs.
type summary struct {
	Rows    []row    `json:"rows"`
	Raw     spread   `json:"raw_bytes_per_s"`
	Direct  bool     `json:"raw_direct"`
	Drift   float64  `json:"drift,omitempty"` // the first arm repeated last, over the first
	Demands []figure `json:"demands"`
}

// figure is one that was to be reached.
type figure struct {
	Wanted string `json:"wanted"`
	Got    string `json:"got"`
	Met    string `json:"met"`
}

// What a figure comes to.
const (
	yes         = "yes"
	no          = "no"
	notMeasured = "not measured"
)

func verdict(met bool) string {
	if met {
		return yes
	}
	return no
}

// The figures to reach.
const (
	leastOfMmap     = 8.0
	leastOfDemand   = 1.25
	mostOfBound     = 1.15
	leastOfResident = 0.97
	leastPrefill    = 3.0
)

// summarise works out what was measured.
func summarise(f *findings, budgets []budget) (s summary) {
	for _, b := range budgets {
		for _, arm := range []string{resident, mmap, demand, outrider} {
			s.add(f.rowOf(speed, b.text, arm))
		}
	}
	for _, arm := range []string{mmap, demand, outrider} {
		s.add(f.rowOf(prefill, reference, arm))
	}
	s.Raw, s.Direct = f.raw()
	s.Drift = f.drift()
	s.Demands = append(s.Demands, f.equality())
	at := s.find(speed, reference)
	s.Demands = append(s.Demands,
		atLeast("decode at 25 %: outrider / mmap, same memory limit", at.OfMmap, leastOfMmap),
		atLeast("decode at 25 %: outrider / demand", at.OfDemand, leastOfDemand))
	for _, b := range budgets {
		s.Demands = append(s.Demands, atMost("time per token at "+b.text+" / max(resident, bytes ÷ raw rate)", s.find(speed, b.text).OfBound, mostOfBound))
	}
	return s.more(f)
}

func (s summary) more(f *findings) summary {
	s.Demands = append(s.Demands,
		atLeast("decode at 100 %, warm: outrider / resident", s.find(speed, "100%").OfResident, leastOfResident),
		atLeast("prefill at 25 %: outrider / mmap, same memory limit", s.find(prefill, reference).OfMmap, leastPrefill),
		f.memory())
	return s
}

func (s *summary) add(r row) {
	if r.Rate.N > 0 {
		s.Rows = append(s.Rows, r)
	}
}

// find is the row of the outrider arm, empty if there is none.
func (s *summary) find(purpose, budget string) row {
	for _, r := range s.Rows {
		if r.Purpose == purpose && r.Budget == budget && r.Arm == outrider {
			return r
		}
	}
	return row{}
}

func atLeast(what string, got spread, want float64) figure {
	f := figure{Wanted: fmt.Sprintf("%s ≥ %g", what, want), Got: got.String(), Met: verdict(got.Median >= want)}
	return f.unless(got.N == 0)
}

func atMost(what string, got spread, want float64) figure {
	f := figure{Wanted: fmt.Sprintf("%s ≤ %g", what, want), Got: got.String(), Met: verdict(got.Median <= want)}
	return f.unless(got.N == 0)
}

func (f figure) unless(absent bool) figure {
	if absent {
		f.Got, f.Met = "", notMeasured
	}
	return f
}

// equality compares every text with that of llama.cpp alone, and what given text made
// likeliest with what it made so there.
func (f *findings) equality() figure {
	out := figure{Wanted: fmt.Sprintf("greedy text of every arm equal to resident's, %d prompts, also at the floor (%.1f MB)", len(prompts), float64(f.Sizes.FloorBytes)/megabyte)}
	var texts, digests tally
	for i := range f.Runs {
		e := &f.Runs[i]
		switch {
		case e.Purpose == equal && e.Arm != resident:
			want := f.reference(e.Prompt)
			same := e.ids() != nil && slices.Equal(e.ids(), want)
			texts.count(same, fmt.Sprintf("%s: %s", e.step, difference(e.ids(), want)))
		case e.Purpose == speed && streams(e.Arm):
			want := f.digest(e)
			digests.count(want != "" && e.Result != nil && e.Result.Forced != nil && e.Result.Forced.Digest == want, e.step.String())
		}
	}
	out.Got = fmt.Sprintf("%d of %d texts; %d of %d runs of given text", texts.same, texts.all, digests.same, digests.all)
	if other := append(texts.other, digests.other...); len(other) > 0 {
		out.Got += ", not " + strings.Join(other, "; ")
	}
	out.Met = verdict(texts.same == texts.all && digests.same == digests.all)
	return out.unless(texts.all == 0)
}

// tally counts what is equal, and names what is not.
type tally struct {
	same, all int
	other     []string
}

func (t *tally) count(same bool, name string) {
	t.all++
	if same {
		t.same++
		return
	}
	t.other = append(t.other, name)
}

// reference is the text of a prompt by llama.cpp alone.
func (f *findings) reference(prompt int) []int32 {
	for i := range f.Runs {
		if e := &f.Runs[i]; e.Purpose == equal && e.Arm == resident && e.Prompt == prompt {
			return e.ids()
		}
	}
	return nil
}

// digest is that of the resident arm beside a run.
func (f *findings) digest(e *entry) string {
	for _, o := range f.Runs {
		if o.Purpose == speed && o.Arm == resident && o.Round == e.Round && o.Budget == e.Budget && o.Result != nil && o.Result.Forced != nil {
			return o.Result.Forced.Digest
		}
	}
	return ""
}

// difference says where a text parts from another.
func difference(got, want []int32) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("token %d is %d, want %d", i+1, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d tokens, want %d", len(got), len(want))
}

// memory is the most that any streaming run had beyond what it may have.
func (f *findings) memory() figure {
	out := figure{Wanted: "resident memory of every streaming run ≤ dense weights + budget + 64 MB"}
	var most float64
	var runs int
	for i := range f.Runs {
		e := &f.Runs[i]
		if e.Result == nil || !streams(e.Arm) || e.Result.PeakBytes == 0 {
			continue
		}
		more := float64(e.Result.PeakBytes-f.allowed(e)+peakExtra) / megabyte
		if runs++; runs == 1 || more > most {
			most = more
			out.Got = fmt.Sprintf("at most %.1f MB more than dense weights + budget (%s)", more, e.step)
		}
	}
	out.Met = verdict(most <= peakExtra/megabyte)
	return out.unless(runs == 0)
}
