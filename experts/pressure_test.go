package experts

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const mib = int64(1) << 20

func newTestPressure(t testing.TB, o PressureOptions) *Pressure {
	t.Helper()
	p, err := NewPressure(o)
	if err != nil {
		t.Fatalf("NewPressure(%+v): got error %v", o, err)
	}
	return p
}

// box is a simulated system: it has memory for so much, a neighbour takes some
// of it, and the share of time lost to stalls rises with what is lacking.
type box struct {
	memory    int64
	neighbour func(second int) int64
	noise     func(second int) float64 // more share of time lost
	swap      bool                     // tells major faults and swap, and no stalls
	steep     float64                  // of the rise; 0 is 4

	sample PressureSample
}

// second lets one second pass with our budget in use.
func (b *box) second(at int, budget int64) {
	lacking := budget - b.memory
	if b.neighbour != nil {
		lacking += b.neighbour(at)
	}
	share := min(1, max(0, cmp.Or(b.steep, 4)*float64(lacking)/float64(b.memory)))
	if b.noise != nil {
		share += b.noise(at)
	}
	if b.swap {
		b.sample.SwappedBytes = max(b.sample.SwappedBytes/2, lacking)
		b.sample.MajorFaults += int64(10000 * share)
		return
	}
	b.sample.StallMicros += int64(1e6 * share)
}

// course is what a Pressure did over a time.
type course struct {
	budgets []int64 // after each second
	turns   int     // from growing to shrinking, or the other way
	settled int     // last second in which the budget changed
}

// run lets a box and a Pressure go on together, and checks what must hold at
// every second.
func run(t interface{ Fatalf(string, ...any) }, p *Pressure, b *box, seconds int) (c course) {
	start := time.Unix(1e9, 0)
	budget, sign, lastShrink := p.Budget(), 0, -100
	for at := range seconds {
		before := b.sample
		b.second(at, budget)
		got := p.Observe(start.Add(time.Duration(at)*time.Second), b.sample)
		under := at > 0 && float64(b.sample.StallMicros-before.StallMicros) >= 1e6*p.o.StallShare
		switch {
		case got != p.Budget(), got < p.o.Floor, got > p.o.Ceiling:
			t.Fatalf("second %d: got a budget of %d, Budget() %d; want the same, from %d to %d", at, got, p.Budget(), p.o.Floor, p.o.Ceiling)
		case under && got > budget:
			t.Fatalf("second %d: got growth from %d to %d under pressure", at, budget, got)
		case got < budget && at-lastShrink < 3:
			t.Fatalf("second %d: got a shrink %d s after the last", at, at-lastShrink)
		case got < budget && budget-got < p.o.Largest && got != p.o.Floor && p.o.Ceiling != budget:
			t.Fatalf("second %d: got a shrink from %d to %d, want at least a record of %d", at, budget, got, p.o.Largest)
		}
		now := sign
		if got < budget {
			now, lastShrink = -1, at
		} else if got > budget {
			now = 1
		}
		if sign != 0 && now != sign {
			c.turns++
		}
		if got != budget {
			c.settled = at
		}
		sign, budget = now, got
		c.budgets = append(c.budgets, got)
	}
	return c
}

// inTurn takes each of the levels for so many seconds, the last for good.
func inTurn(seconds int, levels ...int64) func(int) int64 {
	return func(second int) int64 { return levels[min(second/seconds, len(levels)-1)] }
}

// onOff takes bytes for so many seconds, frees them for as many, and so on.
func onOff(seconds int, bytes int64) func(int) int64 {
	return func(second int) int64 { return int64(second/seconds%2) * bytes }
}

func noise(most float64) func(int) float64 {
	random := rand.New(rand.NewPCG(3, 0))
	return func(int) float64 { return most * random.Float64() }
}

func TestPressureFollowsTheSystem(t *testing.T) {
	const hour = 3600
	o := PressureOptions{Floor: 100 * mib, Ceiling: 1000 * mib, Largest: 4 * mib}
	for name, row := range map[string]struct {
		box      box
		seconds  int
		from, to int64 // budget in the last two hours, MiB
		turns    int   // at most
		settled  int   // second of the last change, at most
	}{
		"nobody else":                {box{memory: 1500 * mib}, 4 * hour, 1000, 1000, 0, 0},
		"nothing told":               {box{memory: 1500 * mib, swap: true}, 4 * hour, 1000, 1000, 0, 0},
		"constant overload":          {box{memory: 50 * mib}, 4 * hour, 100, 100, 0, 60},
		"neighbour stays":            {box{memory: 1500 * mib, neighbour: inTurn(600, 0, 900*mib)}, 4 * hour, 540, 620, 12, 4 * hour},
		"neighbour leaves for good":  {box{memory: 1500 * mib, neighbour: inTurn(600, 0, 900*mib, 0)}, 4 * hour, 1000, 1000, 12, 2 * hour},
		"neighbour lets nearly none": {box{memory: 1500 * mib, neighbour: inTurn(600, 1450*mib, 0)}, 4 * hour, 1000, 1000, 12, 2 * hour},
		"neighbour by the minute":    {box{memory: 1500 * mib, neighbour: onOff(60, 900*mib)}, 12 * hour, 540, 620, 12 + 2*12*6, 12 * hour},
		"neighbour by four minutes":  {box{memory: 1500 * mib, neighbour: onOff(240, 900*mib)}, 12 * hour, 595, 625, 12 + 2*12*6, 12 * hour},
		"neighbour by the hour":      {box{memory: 1500 * mib, neighbour: onOff(hour, 900*mib)}, 12 * hour, 540, 1000, 12 + 2*12*6, 12 * hour},
		"noise under the threshold":  {box{memory: 1500 * mib, noise: noise(0.049)}, 4 * hour, 1000, 1000, 0, 0},
		"stays, with noise":          {box{memory: 1500 * mib, neighbour: inTurn(600, 0, 900*mib), noise: noise(0.03)}, 4 * hour, 480, 620, 12, 4 * hour},
		"stays, with a sharp edge":   {box{memory: 1500 * mib, neighbour: inTurn(600, 0, 900*mib), steep: 1000}, 12 * hour, 585, 610, 12 + 2*12*6, 12 * hour},
		"swap and faults only":       {box{memory: 1500 * mib, neighbour: inTurn(600, 0, 900*mib, 0), swap: true}, 4 * hour, 1000, 1000, 24, 2 * hour},
	} {
		t.Run(name, func(t *testing.T) {
			c := run(t, newTestPressure(t, o), &row.box, row.seconds)
			late := c.budgets[len(c.budgets)-2*hour:]
			low, high := slices.Min(late), slices.Max(late)
			t.Logf("ends at %d MiB, between %d and %d; last change in second %d; %d turns", late[len(late)-1]/mib, low/mib, high/mib, c.settled, c.turns)
			if low < row.from*mib || high > row.to*mib || c.turns > row.turns || c.settled > row.settled {
				t.Errorf("got %d to %d MiB, %d turns, last change in second %d; want %d to %d, at most %d, %d",
					low/mib, high/mib, c.turns, c.settled, row.from, row.to, row.turns, row.settled)
			}
		})
	}
}

// TestPressureOnAnySystem: whatever a neighbour does, what run checks holds,
// turns are few, and the ceiling is reached again once the neighbour is gone.
func TestPressureOnAnySystem(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		o := PressureOptions{
			Floor: rapid.Int64Range(1, 300).Draw(r, "floor") * mib, Ceiling: 1000 * mib,
			Largest: rapid.Int64Range(0, 60).Draw(r, "largest") * mib,
			Calm:    time.Duration(rapid.IntRange(1, 20).Draw(r, "calm")) * time.Second, MaxCalm: 2 * time.Minute,
		}
		p, err := NewPressure(o)
		if err != nil {
			r.Fatal(err)
		}
		b := &box{memory: rapid.Int64Range(1000, 2000).Draw(r, "memory") * mib, swap: rapid.Bool().Draw(r, "swap"), steep: rapid.Float64Range(1, 500).Draw(r, "steep")}
		length := rapid.IntRange(1, 100).Draw(r, "length")
		taken := rapid.SliceOfN(rapid.Int64Range(0, 2000), 1, 60).Draw(r, "taken")
		b.neighbour = func(second int) int64 { return taken[min(second/length, len(taken)-1)] * mib }
		seconds := length * len(taken)
		c := run(r, p, b, seconds)
		turns := func(seconds int) int { return 2 * (9 + 2*seconds/120) }
		if c.turns > turns(seconds) {
			r.Errorf("got %d turns in %d s, want at most %d", c.turns, seconds, turns(seconds))
		}
		b.neighbour = nil
		c = run(r, p, b, 8*120+20*64)
		if p.Budget() != o.Ceiling || c.turns > 2 {
			r.Errorf("with the neighbour gone: got %d MiB after %d s and %d turns, want %d MiB and at most 2", p.Budget()/mib, len(c.budgets), c.turns, o.Ceiling/mib)
		}
	})
}

func TestNewPressureRefuses(t *testing.T) {
	for name, change := range map[string]func(*PressureOptions){
		"floor":       func(o *PressureOptions) { o.Floor = -1 },
		"ceiling":     func(o *PressureOptions) { o.Ceiling = o.Floor - 1 },
		"no ceiling":  func(o *PressureOptions) { o.Floor, o.Ceiling = 0, 0 },
		"largest":     func(o *PressureOptions) { o.Largest = -1 },
		"share":       func(o *PressureOptions) { o.StallShare = -0.1 },
		"not a share": func(o *PressureOptions) { o.StallShare = math.NaN() },
		"every":       func(o *PressureOptions) { o.Every = -1 },
		"calm":        func(o *PressureOptions) { o.Calm = -1 },
	} {
		o := PressureOptions{Floor: 10, Ceiling: 20}
		change(&o)
		if _, err := NewPressure(o); err == nil || !strings.HasPrefix(err.Error(), "experts: pressure: ") {
			t.Errorf("%s: got error %v, want one of the pressure", name, err)
		}
	}
	p := newTestPressure(t, PressureOptions{Floor: 10, Ceiling: 20})
	if p.Every() != time.Second || p.Budget() != 20 || p.Reason() != "" {
		t.Errorf("new: got every %v, budget %d, reason %q; want 1s, 20, none", p.Every(), p.Budget(), p.Reason())
	}
}

func TestPressureSigns(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, row := range map[string]struct {
		after  time.Duration
		sample PressureSample
		want   int64 // MiB
		reason string
	}{
		"stalls":                      {time.Second, PressureSample{1050000, 500, mib}, 875, "memory stalls took 5.0 % of the time"},
		"stalls over a longer time":   {10 * time.Second, PressureSample{1490000, 500, mib}, 1000, ""},
		"swapped out":                 {time.Second, PressureSample{1000000, 500, 3 * mib}, 875, "2.0 MiB were swapped out"},
		"little swapped out":          {time.Second, PressureSample{1000000, 500, mib + 4096}, 1000, ""},
		"faults":                      {time.Second, PressureSample{1000000, 700, mib}, 875, "200 major faults a second while memory is in swap"},
		"few faults":                  {time.Second, PressureSample{1000000, 550, mib}, 1000, ""},
		"faults with nothing in swap": {time.Second, PressureSample{1000000, 5000, 0}, 1000, ""},
		"too soon":                    {time.Second / 3, PressureSample{2000000, 500, mib}, 1000, ""},
		"clock runs backwards":        {-time.Second, PressureSample{2000000, 500, mib}, 1000, ""},
		"stalls start anew":           {time.Second, PressureSample{900000, 9000, mib}, 1000, ""},
		"faults start anew":           {time.Second, PressureSample{9000000, 10, mib}, 1000, ""},
	} {
		p := newTestPressure(t, PressureOptions{Floor: 0, Ceiling: 1000 * mib})
		p.Observe(now, PressureSample{1000000, 500, mib})
		got := p.Observe(now.Add(row.after), row.sample)
		if got != row.want*mib || p.Reason() != row.reason {
			t.Errorf("%s: got %d MiB, reason %q; want %d, %q", name, got/mib, p.Reason(), row.want, row.reason)
		}
	}
}

// TestPressureTakesBackAFailedTry: a step to where pressure came before, and
// comes again, is undone; the next try waits twice as long.
func TestPressureTakesBackAFailedTry(t *testing.T) {
	p := newTestPressure(t, PressureOptions{Ceiling: 1024 * mib})
	now, s := time.Unix(1e9, 0), PressureSample{}
	second := func(stall int64) int64 {
		now = now.Add(time.Second)
		s.StallMicros += stall
		return p.Observe(now, s)
	}
	grow := func() (before int64, seconds int) {
		for before = p.Budget(); p.Budget() == before; seconds++ {
			second(0)
		}
		return before, seconds
	}
	second(0)
	if got := second(1e6); got != 896*mib {
		t.Fatalf("pressed: got %d MiB, want 896", got/mib)
	}
	for p.Budget() < 1008*mib {
		if _, seconds := grow(); seconds != 10 {
			t.Errorf("growth to %d MiB: got it after %d s, want 10", p.Budget()/mib, seconds)
		}
	}
	before, _ := grow()
	if got := second(1e6); got != before {
		t.Errorf("pressed again: got %d MiB, want the %d of before the last step", got/mib, before/mib)
	}
	if _, seconds := grow(); seconds != 20 {
		t.Errorf("next growth: got it after %d s, want 20", seconds)
	}
}

func TestPressureCeilingMoves(t *testing.T) {
	p := newTestPressure(t, PressureOptions{Floor: 100 * mib, Ceiling: 1000 * mib})
	now := time.Unix(1e9, 0)
	f := func(what string, got, want int64) {
		t.Helper()
		if got/mib != want || p.Budget() != got {
			t.Errorf("%s: got %d MiB, Budget() %d; want %d", what, got/mib, p.Budget()/mib, want)
		}
	}
	p.SetCeiling(800 * mib)
	f("lowered", p.Budget(), 800)
	p.Observe(now, PressureSample{})
	f("pressed", p.Observe(now.Add(time.Second), PressureSample{StallMicros: 1e6}), 700)
	p.SetCeiling(1200 * mib)
	f("raised while shrunk", p.Budget(), 700)
	f("grows", p.Observe(now.Add(20*time.Second), PressureSample{StallMicros: 1e6}), 718)
	p.SetCeiling(1)
	f("below the floor", p.Budget(), 100)
	p.SetCeiling(500 * mib)
	f("raised at the ceiling", p.Budget(), 500)
}
