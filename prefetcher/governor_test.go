package prefetcher

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// play issues n reads a step for the next step, of which the share good turns
// out useful, and returns the reads issued until the governor is off.
func play(g *Governor, from int64, steps, n int, good float64, seed uint64) (issued int, step int64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	useful := 0
	for step = from; step < from+int64(steps); step++ {
		g.Useful(useful)
		useful = 0
		g.Step(step, nil)
		for range n {
			if !g.Allow() {
				break
			}
			g.Issued(step + 1)
			issued++
			if rnd.Float64() < good {
				useful++
			}
		}
		if g.Mode() == SpeculationOff {
			return issued, step
		}
	}
	return issued, step
}

func TestGovernorSwitchesOff(t *testing.T) {
	tests := []struct {
		name   string
		good   float64
		want   GovernorMode
		within int // reads issued until off
	}{
		{"always wrong", 0, SpeculationOff, 40},
		{"nearly always wrong", 0.05, SpeculationOff, 120},
		{"right half of the time", 0.5, SpeculationOn, 0},
		{"always right", 1, SpeculationOn, 0},
	}
	for _, tt := range tests {
		g := NewGovernor(GovernorOptions{})
		issued, step := play(g, 1, 2000, 4, tt.good, 7)
		if g.Mode() != tt.want {
			t.Errorf("%s: got %v after %d steps (usefulness %.2f), want %v", tt.name, g.Mode(), step, g.Usefulness(), tt.want)
		}
		if tt.want == SpeculationOff && issued > tt.within {
			t.Errorf("%s: got %d reads before it was off, want at most %d", tt.name, issued, tt.within)
		}
	}
}

func TestGovernorThresholdRisesAsUsefulnessFalls(t *testing.T) {
	last := -1.0
	for _, good := range []float64{1, 0.4, 0.25, 0.18} {
		g := NewGovernor(GovernorOptions{Window: 1000})
		play(g, 1, 1000, 4, good, 3)
		got := g.Threshold()
		if got < last || (good < 0.3 && got <= last) {
			t.Errorf("useful %v: got threshold %.3f, want more than %.3f", good, got, last)
		}
		last = got
	}
	if got := NewGovernor(GovernorOptions{}).Threshold(); got != 0.22 {
		t.Errorf("at start: got threshold %v, want 0.22", got)
	}
}

func TestGovernorProbesAndComesBack(t *testing.T) {
	g := NewGovernor(GovernorOptions{Backoff: 100})
	_, step := play(g, 1, 1000, 4, 0, 1)
	if g.Mode() != SpeculationOff {
		t.Fatalf("after wrong forecasts: got %v, want off", g.Mode())
	}
	if g.Allow() || g.Width(0) != 0 {
		t.Errorf("off: got allow %v width %d, want false 0", g.Allow(), g.Width(0))
	}
	g.Step(step+99, nil)
	if g.Mode() != SpeculationOff {
		t.Errorf("before the back-off ends: got %v, want off", g.Mode())
	}
	g.Step(step+100, nil)
	if g.Mode() != SpeculationProbe {
		t.Fatalf("after the back-off: got %v, want probe", g.Mode())
	}
	for range 8 {
		if !g.Allow() {
			t.Fatal("probe: got not allowed, want 8 reads")
		}
		g.Issued(step + 101)
	}
	if g.Allow() {
		t.Error("probe: got a ninth read, want 8 at most")
	}
	g.Useful(5)
	g.Step(step+101, nil)
	if g.Mode() != SpeculationProbe {
		t.Errorf("before the reads are due: got %v, want probe", g.Mode())
	}
	g.Step(step+102, nil)
	if g.Mode() != SpeculationOn {
		t.Errorf("after a probe that paid: got %v, want on", g.Mode())
	}
}

func TestGovernorProbeIsNotJudgedByOldReads(t *testing.T) {
	g := NewGovernor(GovernorOptions{Backoff: 4})
	g.Step(1, nil)
	for range 24 {
		g.Issued(2)
	}
	for range 8 {
		g.Issued(20)
	}
	for step := int64(2); step < 25; step++ {
		g.Step(step, nil)
	}
	if g.Mode() != SpeculationProbe {
		t.Errorf("a probe that issued nothing: got %v, want probe", g.Mode())
	}
}

func TestGovernorBackoffDoubles(t *testing.T) {
	g := NewGovernor(GovernorOptions{Backoff: 10, MaxBackoff: 40})
	var pauses []int64
	off := int64(-1)
	for step := int64(1); step < 400; step++ {
		before := g.Mode()
		g.Step(step, nil)
		if before != SpeculationOff && g.Mode() == SpeculationOff {
			off = step
		}
		if before == SpeculationOff && g.Mode() == SpeculationProbe {
			pauses = append(pauses, step-off)
		}
		for range 8 {
			if g.Allow() {
				g.Issued(step + 1)
			}
		}
	}
	want := []int64{10, 20, 40, 40}
	if len(pauses) < len(want) {
		t.Fatalf("pauses: got %v, want %v", pauses, want)
	}
	for i := range want {
		if pauses[i] != want[i] {
			t.Fatalf("pauses: got %v, want %v", pauses, want)
		}
	}
}

func TestGovernorForgivesAfterGoodEvidence(t *testing.T) {
	g := NewGovernor(GovernorOptions{Backoff: 10, MaxBackoff: 1000})
	good := false
	var pauses []int64
	off := int64(-1)
	for step := int64(1); step < 400; step++ {
		before := g.Mode()
		g.Step(step, nil)
		if before != SpeculationOff && g.Mode() == SpeculationOff {
			off = step
			good = len(pauses) == 2 // the third probe pays
		}
		if before == SpeculationOff && g.Mode() == SpeculationProbe {
			pauses = append(pauses, step-off)
		}
		for range 8 {
			if g.Allow() {
				g.Issued(step + 1)
				if good {
					g.Useful(1)
				}
			}
		}
		if good && step > off+100 { // and then no longer
			good = false
		}
	}
	want := []int64{10, 20, 40, 10, 20}
	if !slices.Equal(pauses[:min(len(want), len(pauses))], want) {
		t.Errorf("pauses: got %v, want them to begin with %v", pauses, want)
	}
}

func TestGovernorDisplacedOutweighsUseful(t *testing.T) {
	tests := []struct {
		name              string
		useful, displaced int // of four reads
		want              GovernorMode
	}{
		{"mostly wrong, each displaces", 1, 4, SpeculationOff},
		{"half wrong, each displaces", 2, 4, SpeculationOff},
		{"half wrong, a quarter displaces", 2, 1, SpeculationOn},
		{"all right, half displace", 4, 2, SpeculationOn},
		{"all right, each displaces: nothing is gained", 4, 4, SpeculationOff},
	}
	for _, tt := range tests {
		g := NewGovernor(GovernorOptions{})
		for step := int64(1); step < 200 && g.Mode() == SpeculationOn; step++ {
			g.Step(step, nil)
			for range 4 {
				g.Issued(step + 1)
			}
			g.Useful(tt.useful)
			g.Displaced(tt.displaced)
		}
		if g.Mode() != tt.want {
			t.Errorf("%s: got %v at usefulness %.2f, want %v", tt.name, g.Mode(), g.Usefulness(), tt.want)
		}
	}
}

func TestGovernorLateCountsHalf(t *testing.T) {
	g := NewGovernor(GovernorOptions{})
	for step := int64(1); step < 400; step++ {
		g.Step(step, nil)
		g.Issued(step + 1)
		g.Late(1)
	}
	if got := g.Usefulness(); got < 0.45 || got > 0.55 {
		t.Errorf("all late: got usefulness %.3f, want about 0.5", got)
	}
}

func TestGovernorWidthFollowsIdleTime(t *testing.T) {
	g := NewGovernor(GovernorOptions{Lanes: 2, MaxWidth: 8})
	if got := g.Width(0); got != 8 {
		t.Errorf("at start: got width %d, want 8", got)
	}
	for step := int64(1); step < 100; step++ {
		g.Step(step, []float64{1, 0.5})
	}
	if got := g.Width(0); got != 1 {
		t.Errorf("busy lane: got width %d, want 1", got)
	}
	if got := g.Width(1); got != 4 {
		t.Errorf("half idle lane: got width %d, want 4", got)
	}
	if got := g.Width(2); got != 0 {
		t.Errorf("no such lane: got width %d, want 0", got)
	}
}

func TestGovernorDemandWaitNarrows(t *testing.T) {
	g := NewGovernor(GovernorOptions{MaxWidth: 8})
	g.DemandWait()
	if got := g.Width(0); got != 4 {
		t.Errorf("after a wait: got width %d, want 4", got)
	}
	for range 9 {
		g.DemandWait()
	}
	if got := g.Width(0); got != 1 {
		t.Errorf("after many waits: got width %d, want 1", got)
	}
	for step := int64(1); step <= 20; step++ {
		g.Step(step, nil)
	}
	if got := g.Width(0); got != 8 {
		t.Errorf("after steps without a wait: got width %d, want 8", got)
	}
}

// An adversary whose forecasts are sure and always wrong costs at most 2 % of
// the demand reads over a run.
func TestGovernorAdversary(t *testing.T) {
	const steps, demandsAStep = 4000, 2
	for _, perStep := range []int{1, 4, 16} {
		g := NewGovernor(GovernorOptions{})
		issued, off := 0, int64(0)
		for step := int64(1); step <= steps; step++ {
			g.Step(step, nil)
			if g.Mode() == SpeculationOff && off == 0 {
				off = step
			}
			a := Admission{Step: step, Threshold: g.Threshold(), ReadSteps: 0.1}
			for i := range perStep {
				if g.Allow() && a.Admit(Candidate{P: 0.99, NeededBy: step + 1}, i) {
					g.Issued(step + 1)
					issued++
				}
			}
		}
		if limit := int64(200 / perStep); off == 0 || off > max(limit, 10) {
			t.Errorf("%d a step: got off at step %d, want within %d", perStep, off, max(limit, 10))
		}
		if share := float64(issued) / (steps * demandsAStep); share > 0.02 {
			t.Errorf("%d a step: got %d wasted reads, %.2f %% of demand reads, want at most 2 %%", perStep, issued, 100*share)
		}
	}
}

func TestGovernorIsDeterministicAndSafeOnOddSteps(t *testing.T) {
	run := func() [3]float64 {
		g := NewGovernor(GovernorOptions{})
		for _, step := range []int64{5, 5, 3, 1 << 40, 1<<40 + 1, 0} {
			g.Step(step, []float64{2, -1, 0})
			g.Issued(step + 1)
			g.Issued(-7)
			g.Issued(1 << 60)
		}
		return [3]float64{g.Usefulness(), g.Threshold(), float64(g.Width(0))}
	}
	if a, b := run(), run(); a != b {
		t.Errorf("two runs of the same events: got %v and %v, want the same", a, b)
	}
}
