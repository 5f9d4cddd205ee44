package runtime_test

import (
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// routing is a router whose choice follows from the token and the layer.
func routing(token int32, layer int) []int32 {
	a := (token*5 + int32(layer)*3) % 16
	return []int32{a, (a + 7) % 16}
}

// knowing foretells routing once it was told the token, or wrong experts only.
type knowing struct {
	shape layout.Shape
	wrong int32 // added to each expert's number
}

type knowingHistory struct {
	*knowing
	token int32
	last  int
}

func (k *knowing) Name() string { return "knowing" }

func (k *knowing) NewHistory() router.History { return &knowingHistory{knowing: k} }

func (h *knowingHistory) Begin(_ trace.Phase, tokens []int32) { h.token, h.last = tokens[0], -1 }

func (h *knowingHistory) Observe(layer int, _ []router.Choice) { h.last = layer }

func (h *knowingHistory) Score(layer int, dst []float32) {
	clear(dst)
	if layer <= h.last {
		return // of the next token, which is not known yet
	}
	for _, e := range routing(h.token, layer) {
		dst[(e+h.wrong)%int32(h.shape.Experts)] = 0.95
	}
}

// play runs tokens through some sessions in turn, each layer taking five reads'
// time, and returns what it cost.
func play(t *testing.T, sessions int, o runtime.Options) runtime.Stats {
	t.Helper()
	var st runtime.Stats
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 8+8*sessions, slow, o)
		defer m.Close()
		var running []*runtime.Session
		for range sessions {
			running = append(running, m.NewSession())
		}
		for token := range int32(100) {
			for n, s := range running {
				s.Step(trace.Decode, []int32{token + int32(n)*37})
			}
			for layer := range small.Layers {
				for n, s := range running {
					time.Sleep(5 * time.Millisecond) // attention
					serve(t, m, s, layer, routing(token+int32(n)*37, layer))
				}
			}
		}
		st = m.Stats()
	})
	return st
}

func serve(t *testing.T, m *model, s *runtime.Session, layer int, ids []int32) {
	t.Helper()
	use, err := s.Use(t.Context(), layer, choose(ids...))
	if err != nil {
		t.Fatal(err)
	}
	defer use.Release()
	for ex, err := range use.Ready(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		m.check(ex)
	}
}

// A right forecast and a drive that is fast enough leave no stall, for one
// sequence and for several that take turns.
func TestRightForecastLeavesNoStall(t *testing.T) {
	for _, sessions := range []int{1, 3} {
		demand := play(t, sessions, runtime.Options{Keep: runtime.KeepLRU})
		ahead := play(t, sessions, runtime.Options{Predictor: &knowing{shape: small}})
		if ahead.Stall > demand.Stall/20 {
			t.Errorf("%d sessions: stall %v, on demand %v: want at most a twentieth", sessions, ahead.Stall, demand.Stall)
		}
		if ahead.LostObservations != 0 {
			t.Errorf("%d sessions: %d observations lost, want none", sessions, ahead.LostObservations)
		}
		t.Logf("%d sessions: hits %.3f, stall %v; on demand %.3f, %v", sessions, ahead.HitRate(), ahead.Stall, demand.HitRate(), demand.Stall)
	}
}

// A wrong forecast must not cost more than a little: it is switched off.
func TestWrongForecastIsSwitchedOff(t *testing.T) {
	keep := play(t, 1, runtime.Options{Predictor: &knowing{shape: small, wrong: 3}, NoSpeculation: true})
	ahead := play(t, 1, runtime.Options{Predictor: &knowing{shape: small, wrong: 3}})
	if got, most := ahead.Reads.Issued, keep.Reads.DemandReads/5; got > most {
		t.Errorf("%d speculative reads, want at most %d", got, most)
	}
	if got, most := ahead.Reads.DemandReads, keep.Reads.DemandReads*105/100; got > most {
		t.Errorf("%d demand reads with speculation, want at most 1.05 x %d", got, keep.Reads.DemandReads)
	}
	t.Logf("speculative reads %d, demand reads %d (without speculation %d)", ahead.Reads.Issued, ahead.Reads.DemandReads, keep.Reads.DemandReads)
}

// A forecast that takes its time holds nobody up: observations are dropped.
func TestSlowForecastHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 16, device.Model{}, runtime.Options{Predictor: sleepy{}})
		defer m.Close()
		s := m.NewSession()
		began := time.Now()
		for token := range int32(50) {
			for layer := range small.Layers {
				serve(t, m, s, layer, routing(token, layer))
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the runner waited %v for the forecast, want 0", took)
		}
		if m.Stats().LostObservations == 0 {
			t.Error("no observation was dropped: the test does not test what it says")
		}
	})
}

// sleepy takes a second for everything.
type sleepy struct{}

func (sleepy) Name() string                 { return "sleepy" }
func (sleepy) NewHistory() router.History   { return sleepy{} }
func (sleepy) Begin(trace.Phase, []int32)   { time.Sleep(time.Second) }
func (sleepy) Observe(int, []router.Choice) { time.Sleep(time.Second) }
func (sleepy) Score(_ int, dst []float32)   { clear(dst) }
