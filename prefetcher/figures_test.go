package prefetcher

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/layout"
)

// The figures of this file are those that the project promises of lanes, queue and
// copies. Drives are modelled and time is virtual, so they are exact.

const (
	kib = 1 << 10
	mib = 1 << 20
)

// nvme is a drive of 1 GB/s.
var nvme = device.Model{BytesPerSecond: 1e9, Latency: 80 * time.Microsecond}

func everyExpert(layout.ExpertID) bool { return true }

// batches demands random experts, all of them absent, in layer batches, and returns
// how long each batch took.
func (r *rig) batches(n, size int, rng *rand.Rand) (took []time.Duration) {
	r.t.Helper()
	shape := r.src.Shape()
	for range n {
		in := &inbox{rig: r, blind: true}
		start := time.Now()
		for tag, e := range rng.Perm(shape.Experts)[:size] {
			id := layout.ExpertID{Layer: 0, Index: int32(e)}
			r.p.Demand(id, tag, in)
		}
		in.await(size)
		took = append(took, time.Since(start))
		for _, l := range in.letters() {
			if l.err != nil {
				r.t.Fatal(l.err)
			}
		}
		r.empty()
	}
	return took
}

// empty drops all that nobody holds.
func (r *rig) empty() {
	r.t.Helper()
	floor := r.cache.Floor()
	if err := errors.Join(r.cache.SetBudget(floor), r.cache.SetBudget(r.budget)); err != nil {
		r.t.Fatal(err)
	}
}

func total(d []time.Duration) (sum time.Duration) {
	for _, t := range d {
		sum += t
	}
	return sum
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// wide is a layer of experts with room for two batches of eight, and strays.
func wide(bytes int64, o rigOptions) rigOptions {
	o.shape, o.bytes, o.room, o.hollow = layout.Shape{Layers: 1, Experts: 32, TopK: 1}, bytes, 20, true
	o.NoSpeculation = true
	return o
}

func TestEqualLanesAddUp(t *testing.T) {
	for _, bytes := range []int64{4 * mib, mib} {
		var one time.Duration
		for _, lanes := range []int{1, 2, 4} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, wide(bytes, rigOptions{model: nvme, lanes: lanes}))
				took := total(r.batches(40, 8, rand.New(rand.NewPCG(1, 2))))
				if lanes == 1 {
					one = took
				}
				share := float64(one) / float64(took) / float64(lanes)
				t.Logf("8 x %d KiB from %d lanes: %.3f of %d times one lane", bytes/kib, lanes, share, lanes)
				if share < 0.9 {
					t.Errorf("8 x %d KiB from %d lanes: got %.3f of %d times one lane, want 0.9", bytes/kib, lanes, share, lanes)
				}
				r.close()
			})
		}
	}
}

func TestTenToOneLanesAreNotSlowerThanTheFastOne(t *testing.T) {
	slow := nvme
	slow.BytesPerSecond /= 10
	for _, batch := range []int{1, 8} {
		var alone time.Duration
		for _, lanes := range [][]device.Model{{nvme}, {nvme, slow}} {
			synctest.Test(t, func(t *testing.T) {
				// As the layout tool deals: in proportion to what was measured.
				r := newRig(t, wide(4*mib, rigOptions{models: lanes, shares: []float64{10, 1}[:len(lanes)]}))
				took := total(r.batches(40, batch, rand.New(rand.NewPCG(1, 2))))
				if len(lanes) == 1 {
					alone = took
				}
				t.Logf("%d x 4 MiB from %d lanes: %.3f of the fast lane's time alone", batch, len(lanes), float64(took)/float64(alone))
				if took > alone {
					t.Errorf("%d x 4 MiB from 10:1 lanes: took %v, the fast lane alone %v", batch, took, alone)
				}
				r.close()
			})
		}
	}
}

// One of four lanes falls to a quarter of its speed, and recovers.
func TestSlowedLaneIsNoticedAndSoIsItsRecovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, wide(4*mib, rigOptions{model: nvme, lanes: 4, copied: everyExpert}))
		rng := rand.New(rand.NewPCG(1, 2))
		before := total(r.batches(20, 8, rng))
		r.drives[1].SetSpeed(nvme.BytesPerSecond / 4)
		r.batches(200/8, 8, rng) // within 200 reads
		slowed := total(r.batches(20, 8, rng))
		ideal := float64(before) * 4 / 3.25
		t.Logf("one of four lanes slowed 4 x: %.3f of ideal", ideal/float64(slowed))
		if ideal/float64(slowed) < 0.8 {
			t.Errorf("one of four lanes slowed 4 x: got %.3f of ideal, want 0.8", ideal/float64(slowed))
		}
		r.drives[1].SetSpeed(nvme.BytesPerSecond)
		r.batches(200/8, 8, rng)
		after := total(r.batches(20, 8, rng))
		t.Logf("recovered: %.3f of before", float64(before)/float64(after))
		if float64(before)/float64(after) < 0.95 {
			t.Errorf("after the recovery: got %.3f of the rate before, want 0.95", float64(before)/float64(after))
		}
		r.close()
	})
}

func TestStalledReadsWithCopies(t *testing.T) {
	for _, bytes := range []int64{256 * kib, 2 * mib} {
		synctest.Test(t, func(t *testing.T) {
			normal := nvme.Latency + time.Duration(float64(min(bytes/2, mib))/nvme.BytesPerSecond*float64(time.Second))
			models := []device.Model{nvme, nvme}
			for i := range models {
				models[i].Rule = device.Stall(100, 100*normal, uint64(i+1))
			}
			r := newRig(t, wide(bytes, rigOptions{models: models, copied: everyExpert}))
			r.batches(500, 1, rand.New(rand.NewPCG(3, 4))) // until the p95 is known
			took := r.batches(20000, 1, rand.New(rand.NewPCG(1, 2)))
			p50, p999 := quantile(took, 0.5), quantile(took, 0.999)
			s := r.p.Stats()
			share := float64(s.HedgedBytes) / float64(s.DemandBytes)
			t.Logf("%d KiB, 1 %% of reads stalled 100 x: p50 %v, p99.9 %v = %.2f x, %.2f %% read twice, %d of %d hedges won",
				bytes/kib, p50, p999, float64(p999)/float64(p50), 100*share, s.HedgesWon, s.Hedges)
			if p999 > 3*p50 {
				t.Errorf("%d KiB: got p99.9 %v, want at most 3 x p50 = %v", bytes/kib, p999, 3*p50)
			}
			if share > hedgeShare {
				t.Errorf("%d KiB: got %.3f of the bytes read twice, want at most %v", bytes/kib, share, hedgeShare)
			}
			time.Sleep(time.Minute) // the stuck ones end
			if m := r.cache.Stats(); m.Strays != 0 {
				t.Errorf("in the end: got %d strays, want none", m.Strays)
			}
			r.close()
		})
	}
}

func TestLaneRemovedMidRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		copied := func(id layout.ExpertID) bool { return id.Index%2 == 0 }
		o := wide(mib, rigOptions{models: []device.Model{nvme, nvme, nvme}, copied: copied})
		o.hollow = false // checks every byte, and the race detector sees them
		r := newRig(t, o)
		in := &inbox{rig: r}
		rng := rand.New(rand.NewPCG(1, 2))
		n := 0
		for i := range 400 {
			if i == 150 {
				r.drives[1].Remove()
			}
			for range 2 {
				e := rng.IntN(32)
				lease, out := r.cache.Pin(eid(0, e))
				if out.Resident() {
					r.check(lease)
					lease.Release()
					continue
				}
				r.p.Demand(eid(0, e), e, in)
				n++
			}
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Microsecond)
		}
		time.Sleep(time.Minute)
		failed := 0
		for _, l := range in.letters() {
			switch {
			case l.err == nil:
			case l.tag%2 == 0:
				t.Fatalf("expert %d, which has a copy: got %v", l.tag, l.err)
			case !errors.Is(l.err, device.ErrRemoved):
				t.Errorf("expert %d: got %v, want the drive's removal", l.tag, l.err)
			default:
				failed++
			}
		}
		if got := len(in.letters()); got != n || failed == 0 {
			t.Errorf("got %d answers of %d, %d failures of experts without a copy; want all and some", got, n, failed)
		}
		r.close()
	})
}

// A forecast that is right, a look-ahead that gives the drive the time it needs:
// next to nothing is left of the stall.
func TestPerfectForecastHidesTheReads(t *testing.T) {
	const layers, topK, ahead = 8, 2, 2
	record := int64(mib)
	// What a layer's experts take on demand: half of what two layers ahead allow.
	compute := nvme.Latency + time.Duration(float64(topK*record)/nvme.BytesPerSecond*float64(time.Second))
	var demanded time.Duration
	for _, speculate := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			known := &future{layers: layers, experts: 32}
			for range 400 + layers {
				known.choices = append(known.choices, rng.Perm(32)[:topK])
			}
			choices := known.choices
			o := rigOptions{shape: layout.Shape{Layers: layers, Experts: 32, TopK: topK}, bytes: record, room: 32, model: nvme, hollow: true, policy: known}
			o.NoSpeculation = !speculate
			r := newRig(t, o)
			var stall time.Duration
			for step := range 400 {
				r.cache.Step()
				known.step = step
				r.cache.Invalidate((step + layers - 1) % layers) // its next use is another
				r.p.Progress(int64(step))
				stall += r.use(step%layers, choices[step])
				var list []Candidate
				for d := 1; d <= ahead; d++ {
					for _, e := range choices[step+d] {
						list = append(list, Candidate{ID: eid((step+d)%layers, e), P: 0.999, NeededBy: int64(step + d)})
					}
				}
				r.p.Speculate(int64(step), list)
				time.Sleep(compute)
			}
			if !speculate {
				demanded = stall
			} else {
				share := float64(stall) / float64(demanded)
				t.Logf("stall with a perfect forecast: %.4f of that on demand", share)
				if share > 0.05 {
					t.Errorf("stall with a perfect forecast: got %.4f of that on demand, want 0.05", share)
				}
			}
			r.close()
		})
	}
}

// future is the policy of who knows the next use of each layer.
type future struct {
	layers, experts, step int
	choices               [][]int // by step
}

func (f *future) Keys(layer int) []float64 {
	next := f.step + (layer-f.step%f.layers+f.layers)%f.layers
	keys := make([]float64, f.experts)
	for e := range keys {
		keys[e] = float64(next + f.layers) // not before the use after that
		if next < len(f.choices) && slices.Contains(f.choices[next], e) {
			keys[e] = float64(next)
		}
	}
	return keys
}

func (f *future) Expect(_ int, key float64) float64 { return key - float64(f.step) }

// use pins or demands experts of a layer, waits for all and returns how long.
func (r *rig) use(layer int, list []int) time.Duration {
	in := &inbox{rig: r, blind: true}
	start, missing := time.Now(), 0
	for _, e := range list {
		lease, out := r.cache.Pin(eid(layer, e))
		if out.Resident() {
			lease.Release()
			continue
		}
		r.p.Demand(eid(layer, e), e, in)
		missing++
	}
	in.await(missing)
	return time.Since(start)
}

// Forecasts ask for twice of what the drive gives: demands hardly notice. Each step
// uses five experts: four that were forecast, among more that were not used, and one that
// no forecast knew of, which is measured.
func TestOverloadKeepsDemandsQuick(t *testing.T) {
	for _, record := range []int64{512 * kib, mib, 4 * mib} {
		var unloaded time.Duration
		for _, load := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				took, s := overloaded(t, record, load)
				p99 := quantile(took, 0.99)
				if !load {
					unloaded = p99
					return
				}
				ratio := float64(p99) / float64(unloaded)
				t.Logf("%d KiB, twice overloaded: demand p99 %v, %.3f x unloaded; %d speculative reads, %d useful, %d cancelled",
					record/kib, p99, ratio, s.Issued, s.Useful, s.Cancelled)
				if ratio > 1.2 {
					t.Errorf("%d KiB, twice overloaded: got demand p99 %v, %.3f x unloaded, want 1.2", record/kib, p99, ratio)
				}
				if busy := float64(s.Issued) / 1500; busy < 1 {
					t.Errorf("%d KiB: got %.2f speculative reads a step, want a load", record/kib, busy)
				}
			})
		}
	}
}

func overloaded(t *testing.T, record int64, load bool) (took []time.Duration, s Stats) {
	const layers, ahead = 8, 3
	const steps = 1500
	r := newRig(t, rigOptions{shape: layout.Shape{Layers: layers, Experts: 64, TopK: 8}, bytes: record, room: 64,
		model: nvme, hollow: true})
	rng := rand.New(rand.NewPCG(1, 2))
	read := time.Duration(float64(record) / nvme.BytesPerSecond * float64(time.Second))
	var forecast [][]int // by step: the first four are right
	for range steps + ahead {
		forecast = append(forecast, rng.Perm(64)[:8])
	}
	for step := range steps {
		r.cache.Step()
		r.p.Progress(int64(step))
		layer := step % layers
		other := rng.IntN(64)
		for r.cache.Resident(eid(layer, other)) || slices.Contains(forecast[step], other) {
			other = rng.IntN(64)
		}
		took = append(took, r.use(layer, []int{other}))
		r.use(layer, forecast[step][:4])
		if load { // eight reads more a step, in which the drive does four
			var list []Candidate
			for d := 1; d <= ahead; d++ {
				for _, e := range forecast[step+d] {
					list = append(list, Candidate{ID: eid((step+d)%layers, e), P: 0.9, NeededBy: int64(step + d)})
				}
			}
			r.p.Speculate(int64(step), list)
		}
		time.Sleep(2*read + time.Duration(rng.Int64N(int64(read))))
	}
	s = r.p.Stats()
	r.close()
	return took[steps/10:], s
}
