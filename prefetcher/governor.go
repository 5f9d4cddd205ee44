package prefetcher

import "math"

// GovernorOptions set when speculation pays. The zero value means the defaults.
type GovernorOptions struct {
	Lanes    int // lanes of the source; default 1
	MaxWidth int // most speculative blocks being read at once on a lane; default 4

	OffBelow float64 // usefulness under which speculation stops; default 0.15
	Target   float64 // usefulness at which the threshold is lowest; default 0.3

	MinThreshold float64 // least expected saving of a read, in read times; default 0.22
	MaxThreshold float64 // the threshold as usefulness falls to OffBelow; default 0.8

	Window   int   // due reads after which an outcome counts 1/e; default 64
	Evidence int   // due reads before the first verdict; default 24
	Probe    int   // reads of one probe, and those without any use that are verdict enough; default 8
	Backoff  int64 // steps from switching off to the first probe; default 256
	// MaxBackoff limits the doubling of Backoff after each probe that
	// fails; default 1 << 20 steps.
	MaxBackoff int64
}

func (o GovernorOptions) withDefaults() GovernorOptions {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	defF := func(v *float64, d float64) {
		if !(*v > 0) {
			*v = d
		}
	}
	def(&o.Lanes, 1)
	def(&o.MaxWidth, 4)
	def(&o.Window, 64)
	def(&o.Evidence, 24)
	def(&o.Probe, 8)
	defF(&o.OffBelow, 0.15)
	defF(&o.Target, 0.3)
	defF(&o.MinThreshold, 0.22)
	defF(&o.MaxThreshold, 0.8)
	if o.Backoff <= 0 {
		o.Backoff = 256
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = 1 << 20
	}
	o.MaxBackoff = max(o.MaxBackoff, o.Backoff)
	return o
}

// GovernorMode says whether speculation runs.
type GovernorMode uint8

const (
	SpeculationOn    GovernorMode = iota
	SpeculationOff                // it did not pay
	SpeculationProbe              // a few reads to see whether it pays again
)

// String is the word used in logs: "on", "off", "probe".
func (m GovernorMode) String() string {
	switch m {
	case SpeculationOn:
		return "on"
	case SpeculationOff:
		return "off"
	}
	return "probe"
}

// horizon is how many steps ahead the governor remembers when reads fall due.
const horizon = 256

// prior is the weight, in reads, of the assumption that a fresh forecast
// reaches the target.
const prior = 8

// tally is what came of speculative reads.
type tally struct {
	due, right, displaced float64
}

func (t tally) usefulness() float64 {
	if t.due <= 0 {
		return 0
	}
	return max((t.right-t.displaced)/t.due, 0)
}

// Governor decides how much speculation the drive and the forecast are worth.
//
//	      usefulness < OffBelow               Backoff steps
//	on ──────────────────────────▶ off ──────────────────────▶ probe
//	 ▲                              ▲      (doubled each time)   │ │
//	 │                              └────── did not pay ─────────┘ │
//	 └────────────────────────────────────── paid ─────────────────┘
//
// Usefulness is what a read spares: (useful + late/2 − displaced) ÷ due, decayed by
// count of reads. A read is due once the step that it was meant for is over: before
// that it has had no chance to be useful. A late read counts half, since its demand
// waits less. A displaced expert costs a demand read. Some of those a demand in the
// read's place would have displaced as well; they count all the same, because how
// many is not known, and where it matters, just under the token cycle, they are few.
// As usefulness falls from Target to OffBelow the threshold rises from MinThreshold
// to MaxThreshold.
//
// It is a pure state machine: the same events give the same decisions. Not safe
// for concurrent use.
type Governor struct {
	opt     GovernorOptions
	mode    GovernorMode
	step    int64
	due     [horizon]int32 // reads issued for the step congruent to the index
	issued  int            // since the mode was entered
	recent  tally          // decayed
	since   tally          // since the mode was entered
	backoff int64
	wake    int64     // step of the next probe
	idle    []float64 // by lane, share of time that demands leave free
	scale   float64   // of the width; halved when a demand had to wait
}

// NewGovernor makes a governor that starts with speculation on.
func NewGovernor(opt GovernorOptions) *Governor {
	g := &Governor{opt: opt.withDefaults(), scale: 1}
	g.idle = make([]float64, g.opt.Lanes)
	for i := range g.idle {
		g.idle[i] = 1
	}
	g.backoff = g.opt.Backoff
	g.enter(SpeculationOn)
	return g
}

// Allow reports whether one more speculative read may be issued now.
func (g *Governor) Allow() bool {
	switch g.mode {
	case SpeculationOn:
		return true
	case SpeculationProbe:
		return g.issued < g.opt.Probe
	}
	return false
}

// Width is how many speculative blocks may be read at once on a lane: 0 when
// speculation is off, else at least 1, at most MaxWidth, in proportion to the
// time that demands leave the lane idle.
func (g *Governor) Width(lane int) int {
	if g.mode == SpeculationOff || lane < 0 || lane >= len(g.idle) {
		return 0
	}
	return max(1, int(math.Round(float64(g.opt.MaxWidth)*g.idle[lane]*g.scale)))
}

// Threshold is the least expected saving of a speculative read, for Admission.
func (g *Governor) Threshold() float64 {
	lack := (g.opt.Target - g.Usefulness()) / max(g.opt.Target-g.opt.OffBelow, 1e-9)
	lack = min(max(lack, 0), 1)
	return g.opt.MinThreshold + (g.opt.MaxThreshold-g.opt.MinThreshold)*lack
}

// Usefulness is the decayed net use of speculative reads, see Governor; it is at
// least 0 and starts at the target.
func (g *Governor) Usefulness() float64 {
	return g.recent.usefulness()
}

// Mode says whether speculation runs.
func (g *Governor) Mode() GovernorMode { return g.mode }

// Issued tells of one speculative read begun for the step neededBy.
func (g *Governor) Issued(neededBy int64) {
	g.issued++
	neededBy = min(max(neededBy, g.step), g.step+horizon-1)
	g.due[neededBy%horizon]++
}

// Useful tells of n speculative reads used in time.
func (g *Governor) Useful(n int) {
	g.recent.right += float64(n)
	g.since.right += float64(n)
}

// Late tells of n speculative reads that a demand had to wait for.
func (g *Governor) Late(n int) {
	g.recent.right += float64(n) / 2
	g.since.right += float64(n) / 2
}

// Displaced tells of n experts that were thrown out by speculative reads and
// then demanded.
func (g *Governor) Displaced(n int) {
	g.recent.displaced += float64(n)
	g.since.displaced += float64(n)
}

// DemandWait tells that a demand found its lane taken up, with speculation among
// the causes: the width is halved, and recovers by a sixteenth each step.
func (g *Governor) DemandWait() {
	g.scale = max(g.scale/2, 1/float64(g.opt.MaxWidth))
}

// Step tells that a step began. Busy is, for each lane, the share of the time
// since the last step in which demands were being read, 0 to 1; nil leaves the
// measure as it was. Steps never go back: an earlier one counts as the latest.
func (g *Governor) Step(step int64, busy []float64) {
	for lane := range min(len(busy), len(g.idle)) {
		free := 1 - min(max(busy[lane], 0), 1)
		g.idle[lane] += (free - g.idle[lane]) / 8
	}
	g.scale = min(g.scale+1.0/16, 1)
	for s := range min(max(step-g.step, 0), horizon) {
		g.fallDue(int((g.step + s) % horizon))
	}
	g.step = max(g.step, step)
	g.judge()
}

// fallDue counts the reads of one finished step. The decay is by reads, not by
// time, so that a rare speculation is judged on as much evidence as a busy one.
func (g *Governor) fallDue(slot int) {
	n := int(g.due[slot])
	if n == 0 {
		return
	}
	g.due[slot] = 0
	keep := math.Exp(-float64(n) / float64(g.opt.Window))
	g.recent.right *= keep
	g.recent.displaced *= keep
	g.recent.due = g.recent.due*keep + float64(n)
	g.since.due += float64(n)
}

func (g *Governor) judge() {
	switch g.mode {
	case SpeculationOn:
		enough := g.since.due >= float64(g.opt.Evidence)
		hopeless := g.since.due >= float64(g.opt.Probe) && g.since.right == 0
		switch {
		case hopeless || enough && g.Usefulness() < g.opt.OffBelow:
			g.wake = g.step + g.backoff
			g.enter(SpeculationOff)
		case enough:
			g.backoff = g.opt.Backoff
		}
	case SpeculationOff:
		if g.step >= g.wake {
			g.enter(SpeculationProbe)
		}
	case SpeculationProbe:
		if g.since.due < float64(g.opt.Probe) {
			return
		}
		// More than what keeps speculation on: there is less evidence.
		if g.since.usefulness() >= (g.opt.OffBelow+g.opt.Target)/2 {
			g.enter(SpeculationOn)
			return
		}
		g.backoff = min(g.backoff*2, g.opt.MaxBackoff)
		g.wake = g.step + g.backoff
		g.enter(SpeculationOff)
	}
}

// enter changes the mode and starts its evidence anew. Reads of the mode before
// that are not due yet are forgotten: they say nothing about the new one.
func (g *Governor) enter(mode GovernorMode) {
	g.mode, g.issued, g.since = mode, 0, tally{}
	if mode == SpeculationOff {
		return
	}
	clear(g.due[:])
	g.recent = tally{due: prior, right: prior * g.opt.Target}
}
