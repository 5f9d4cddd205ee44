package prefetcher

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/layout"
)

// drive runs one sequence through the model in virtual time: each layer takes
// 2 ms, a read 0.5 ms. Routing is skewed and random by seed; of the forecasts, made
// one layer ahead and all said to be sure, the share right is right.
func (r *rig) drive(passes int, right float64, seed uint64) (exposed time.Duration) {
	shape := r.src.Shape()
	c := &client{r: r, answers: make(chan letter, 4*shape.TopK)}
	rnd := rand.New(rand.NewPCG(seed, 1))
	// The routing is drawn beforehand, so that all arms see the same.
	routes := make([][]int, passes*shape.Layers)
	for i := range routes {
		routes[i] = skewed(rnd, shape)
	}
	for i, route := range routes {
		layer, step := i%shape.Layers, int64(i+1)
		r.cache.Step()
		r.p.Progress(step)
		if i+1 < len(routes) {
			var list []Candidate
			for _, e := range routes[i+1] {
				if rnd.Float64() >= right {
					e = absent(rnd, shape, routes[i+1])
				}
				list = append(list, Candidate{eid((layer+1)%shape.Layers, e), 0.95, step + 1})
			}
			r.p.Speculate(step, list)
		}
		start := time.Now()
		missing := 0
		for _, e := range route {
			if l, out := r.cache.Pin(eid(layer, e)); out.Resident() {
				c.use(l)
			} else {
				r.p.Demand(eid(layer, e), e, c)
				missing++
			}
		}
		for range missing {
			c.use((<-c.answers).lease)
		}
		exposed += time.Since(start)
		time.Sleep(2 * ms)
	}
	return exposed
}

// skewed draws a route in which low ids are likelier.
func skewed(rnd *rand.Rand, shape layout.Shape) (route []int) {
	used := map[int]bool{}
	for len(route) < shape.TopK {
		e := int(rnd.Float64() * rnd.Float64() * float64(shape.Experts))
		if !used[e] {
			used[e] = true
			route = append(route, e)
		}
	}
	return route
}

func absent(rnd *rand.Rand, shape layout.Shape, route []int) int {
	for {
		e := rnd.IntN(shape.Experts)
		hit := false
		for _, r := range route {
			hit = hit || r == e
		}
		if !hit {
			return e
		}
	}
}

func driven() rigOptions {
	return rigOptions{
		shape: layout.Shape{Layers: 8, Experts: 32, TopK: 4}, room: 64,
		model: device.Model{BytesPerSecond: 8192 * 2000},
	}
}

func TestWrongForecastsSwitchThemselvesOff(t *testing.T) {
	const passes = 200
	var without, with Stats
	synctest.Test(t, func(t *testing.T) {
		o := driven()
		o.NoSpeculation = true
		r := newRig(t, o)
		r.drive(passes, 0, 5)
		without = r.p.Stats()
		r.close()
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, driven())
		r.drive(passes, 0, 5)
		with = r.p.Stats()
		r.close()
	})
	t.Logf("without: %d demand reads; with: %d demand, %d speculative reads, mode %v", without.DemandReads, with.DemandReads, with.Issued, with.Mode)
	if with.Issued == 0 {
		t.Error("got no speculative read, want a few")
	}
	if got, limit := with.Issued, without.DemandReads/50; got > limit {
		t.Errorf("got %d wasted reads, want at most %d (2 %%)", got, limit)
	}
	if got, limit := with.DemandReads, without.DemandReads*105/100; got > limit {
		t.Errorf("got %d demand reads, want at most %d (5 %% over none)", got, limit)
	}
}

func TestRightForecastsSpareStalls(t *testing.T) {
	const passes = 60
	exposed := map[string]time.Duration{}
	var reads = map[string]int64{}
	for name, right := range map[string]float64{"none": -1, "half": 0.6, "all": 1} {
		synctest.Test(t, func(t *testing.T) {
			o := driven()
			o.NoSpeculation = right < 0
			r := newRig(t, o)
			exposed[name] = r.drive(passes, right, 9)
			s := r.p.Stats()
			reads[name] = s.DemandReads + s.Late
			t.Logf("%s: exposed %v, %+v", name, exposed[name], s)
			r.close()
		})
	}
	if exposed["all"]*4 > exposed["none"] {
		t.Errorf("forecasts that are right: got %v exposed, want at most a quarter of %v", exposed["all"], exposed["none"])
	}
	if exposed["half"] >= exposed["none"] {
		t.Errorf("forecasts half right: got %v exposed, want less than %v", exposed["half"], exposed["none"])
	}
	for _, name := range []string{"half", "all"} {
		if got, limit := reads[name], reads["none"]*102/100; got > limit {
			t.Errorf("%s: got %d demand misses, want at most %d (2 %% over none)", name, got, limit)
		}
	}
}

func TestGovernorLearnsOfTheDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := driven()
		o.room = 40
		r := newRig(t, o)
		r.drive(10, 0.6, 3)
		r.p.mu.Lock()
		got := r.p.mu.governor.recent.displaced
		r.p.mu.Unlock()
		if s := r.p.Stats(); s.Displaced == 0 || got <= 0 {
			t.Errorf("got %d displaced, the governor knows of %.1f, want more than none", s.Displaced, got)
		}
		r.close()
	})
}

func TestGovernorIsFedFromTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := driven()
		r := newRig(t, o)
		r.drive(40, 1, 3)
		if s := r.p.Stats(); s.Usefulness < 0.5 || s.Mode != SpeculationOn {
			t.Errorf("right forecasts: got usefulness %.2f, mode %v, want more than 0.5, on", s.Usefulness, s.Mode)
		}
		if s := r.p.Stats(); s.ReadSteps < 0.1 || s.ReadSteps > 0.5 {
			t.Errorf("a read of 0.5 ms, steps of 2 ms: got %.3f steps a read, want about 0.25", s.ReadSteps)
		}
		r.close()
	})
}
