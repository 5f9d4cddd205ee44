package runtime_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// ignorant forecasts nothing.
type ignorant struct{}

func (ignorant) Name() string                 { return "ignorant" }
func (ignorant) NewHistory() router.History   { return ignorant{} }
func (ignorant) Begin(trace.Phase, []int32)   {}
func (ignorant) Observe(int, []router.Choice) {}
func (ignorant) Score(_ int, dst []float32) {
	for e := range dst {
		dst[e] = 0.01
	}
}

// hinting plays tokens whose layers are hinted of by tell, before each layer,
// and returns what it cost.
func hinting(t *testing.T, o runtime.Options, tell func(s *runtime.Session, token int32, layer int)) runtime.Stats {
	t.Helper()
	var st runtime.Stats
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 16, slow, o)
		defer m.Close()
		s := m.NewSession()
		for token := range int32(100) {
			s.Step(trace.Decode, nil)
			for layer := range small.Layers {
				if tell != nil {
					tell(s, token, layer)
				}
				time.Sleep(5 * time.Millisecond) // attention
				serve(t, m, s, layer, routing(token, layer))
			}
		}
		synctest.Wait()
		st = m.Stats()
	})
	return st
}

// Right hints leave no stall, whether they come for the layer that is about to
// run, before layer 0 too, or for one far beyond the horizon. Wrong ones cost
// little. Experts are the same in all cases: serve compares every byte.
func TestHintsBringExperts(t *testing.T) {
	o := runtime.Options{Predictor: ignorant{}, Horizon: 1}
	none := hinting(t, o, nil)
	next := hinting(t, o, func(s *runtime.Session, token int32, layer int) { s.Hint(layer, routing(token, layer), nil) })
	far := hinting(t, o, func(s *runtime.Session, token int32, layer int) {
		if layer == 0 {
			s.Hint(3, routing(token, 3), []float32{0.9, 0.8})
		}
	})
	wrong := hinting(t, o, func(s *runtime.Session, token int32, layer int) { s.Hint(layer, routing(token+5, layer+2), nil) })
	t.Logf("stall: no hints %v, next layer %v, three ahead %v, wrong %v", none.Stall, next.Stall, far.Stall, wrong.Stall)
	if next.Stall > none.Stall/20 {
		t.Errorf("hints of the next layer: stall %v, without %v: want at most a twentieth", next.Stall, none.Stall)
	}
	if most := none.Stall * 82 / 100; far.Stall > most || far.Reads.Issued == 0 {
		t.Errorf("hints of layer 3 in layer 0: stall %v, %d speculative reads, want at most %v: layer 3 is a quarter of all", far.Stall, far.Reads.Issued, most)
	}
	if wrong.Reads.DemandReads > none.Reads.DemandReads*105/100 || wrong.Reads.Issued > none.Reads.DemandReads/5 {
		t.Errorf("wrong hints: %d demand reads and %d speculative ones, without hints %d", wrong.Reads.DemandReads, wrong.Reads.Issued, none.Reads.DemandReads)
	}
	if next.Hints != (runtime.HintStats{Told: 400}) || none.Hints != (runtime.HintStats{}) {
		t.Errorf("counted %+v, without hints %+v", next.Hints, none.Hints)
	}
}

// What makes no sense is refused and counted; hints beside no forecast and of
// closed sessions are nothing.
func TestHintsOfNonsense(t *testing.T) {
	m := open(t, 16, device.Model{}, runtime.Options{})
	defer m.Close()
	s := m.NewSession()
	s.Hint(-1, []int32{1}, nil)
	s.Hint(4, []int32{1}, nil)
	s.Hint(1, nil, nil)
	s.Hint(1, []int32{1, 2}, []float32{0.5})
	s.Hint(1, make([]int32, 17), nil)
	s.Hint(1, []int32{-5, 99, 1, 1}, []float32{float32(math.NaN()), 1, -1, 2}) // taken in, worth nothing
	if got := m.Stats().Hints; got != (runtime.HintStats{Told: 1, Refused: 5}) {
		t.Errorf("counted %+v, want one told and five refused", got)
	}
	s.Close()
	s.Hint(1, []int32{1}, nil)
	if got := m.Stats().Hints.Told; got != 1 {
		t.Errorf("%d hints told, want the closed session's to be nothing", got)
	}
	lru := open(t, 16, device.Model{}, runtime.Options{Keep: runtime.KeepLRU})
	defer lru.Close()
	s = lru.NewSession()
	s.Hint(9, nil, nil)
	if err := s.Lookahead(0, nil); err != nil || lru.Stats().Hints != (runtime.HintStats{}) {
		t.Errorf("without a forecast: got %v and %+v, want nothing", err, lru.Stats().Hints)
	}
}

// Hints never take the room of observations: they are dropped first.
func TestHintsAreDroppedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, 16, device.Model{}, runtime.Options{Predictor: sleepy{}})
		defer m.Close()
		s := m.NewSession()
		s.Step(trace.Decode, nil)
		synctest.Wait() // the forecaster sleeps over that
		for range 100 {
			s.Hint(1, []int32{1}, nil)
		}
		for layer := range small.Layers {
			serve(t, m, s, layer, []int32{1, 2})
		}
		st := m.Stats()
		if st.Hints.Told != 32 || st.Hints.Lost != 68 || st.LostObservations != 0 {
			t.Errorf("got %+v and %d observations lost, want half the backlog told and none lost", st.Hints, st.LostObservations)
		}
	})
}

// routerModel is a checkpoint in memory of the shape small whose routers choose
// what routing does for the hidden state of a token.
const lookWidth = 48

func routerModel(t *testing.T, fsys *memfs.FS) layout.Checkpoint {
	t.Helper()
	cp := layout.Checkpoint{Format: "gguf", Name: "looking", Shape: small}
	data := make([]byte, 64)
	for range small.Layers {
		at := int64(len(data))
		data = append(data, bytes.Repeat([]byte("weights!"), small.Experts*32)...)
		cp.Layers = append(cp.Layers, layout.CheckpointLayer{Tensors: []layout.ExpertTensor{{
			Projection: layout.Projection{Name: "up", Type: "F32", Dims: []int64{8, 8}, Bytes: 256}, Source: "up", Offset: at}}})
	}
	cp.Routers = &layout.CheckpointRouters{Width: lookWidth, RouterRule: layout.RouterRule{Scoring: layout.ScoreSoftmax, Scale: 1}}
	for layer := range small.Layers {
		at := int64(len(data))
		for e := range small.Experts {
			for token := range int32(lookWidth) {
				x := float32(0)
				for place, chosen := range routing(token, layer) {
					if int(chosen) == e {
						x = float32(4 - place)
					}
				}
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
			}
		}
		cp.Routers.Layers = append(cp.Routers.Layers, layout.CheckpointRouter{Weight: layout.RouterTensor{
			Source: "gate", Type: "F32", Span: layout.Span{Offset: at, Bytes: int64(len(data)) - at}}})
	}
	if err := fsys.WriteFile("/looking.gguf", data); err != nil {
		t.Fatal(err)
	}
	cp.Files = []layout.CheckpointFile{{Path: "/looking.gguf", Size: int64(len(data)), Header: "00"}}
	return cp
}

// hidden is the state of a token: it points at that alone.
func hidden(token int32) []float32 {
	h := make([]float32, lookWidth)
	h[token%lookWidth] = 1
	return h
}

// looking is a runtime over the model of routerModel, as a store or in place.
func looking(t *testing.T, source layout.Source, o runtime.Options) *runtime.Runtime {
	t.Helper()
	o.BudgetBytes = 24 * 4096
	rt, err := runtime.New(source, o)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// Look-ahead brings the next layer's experts, from a store's routers and from a
// checkpoint's, and with LookaheadLayers those of later ones: then one call in
// layer 0 is enough for all.
func TestLookaheadBringsExperts(t *testing.T) {
	for _, arm := range []struct {
		name  string
		store bool
		calls int // layers that call it
		o     runtime.Options
	}{
		{"store", true, 3, runtime.Options{Predictor: ignorant{}, Horizon: 1}},
		{"in place", false, 3, runtime.Options{Predictor: ignorant{}, Horizon: 1}},
		{"three layers", true, 1, runtime.Options{Predictor: ignorant{}, Horizon: 3, LookaheadLayers: 3}},
	} {
		t.Run(arm.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fsys := memfs.New(memfs.Options{})
				cp := routerModel(t, fsys)
				rt := looking(t, sourceOf(t, fsys, cp, arm.store), arm.o)
				defer rt.Close()
				s := rt.NewSession()
				for token := range int32(60) {
					s.Step(trace.Decode, nil)
					for layer := range small.Layers {
						if layer < arm.calls {
							if err := s.Lookahead(layer, hidden(token)); err != nil {
								t.Fatal(err)
							}
						}
						synctest.Wait() // attention
						use, err := s.Use(t.Context(), layer, choose(routing(token%lookWidth, layer)...))
						if err != nil {
							t.Fatal(err)
						}
						if err := use.Wait(t.Context()); err != nil {
							t.Fatal(err)
						}
						use.Release()
						synctest.Wait()
					}
				}
				st := rt.Stats()
				t.Logf("%s: hits %.3f, %+v", arm.name, st.HitRate(), st.Hints)
				if st.HitRate() < 0.7 || st.Hints.Told != int64(60*arm.calls) {
					t.Errorf("hits %.3f with %+v, want at least 0.70: only layer 0 is not foreseen", st.HitRate(), st.Hints)
				}
			})
		})
	}
}

func sourceOf(t *testing.T, fsys *memfs.FS, cp layout.Checkpoint, store bool) layout.Source {
	t.Helper()
	if !store {
		source, err := layout.OpenInPlace(fsys, cp, layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: "/m", Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	source, err := layout.OpenStore(fsys, "/m", layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// What cannot be is said at once, with the remedy.
func TestLookaheadErrors(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	cp := routerModel(t, fsys)
	rt := looking(t, sourceOf(t, fsys, cp, true), runtime.Options{})
	s := rt.NewSession()
	for text, err := range map[string]error{
		"has 47 numbers": s.Lookahead(0, make([]float32, 47)),
		"layer 4":        s.Lookahead(4, hidden(0)),
		"layer -1":       s.Lookahead(-1, hidden(0)),
	} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want an error that says %q", err, text)
		}
	}
	if err := s.Lookahead(3, hidden(0)); err != nil {
		t.Errorf("after the last layer: got %v, want nothing to happen", err)
	}
	if got := rt.Stats().Hints; got != (runtime.HintStats{Refused: 3}) {
		t.Errorf("counted %+v, want three refused", got)
	}
	rt.Close()
	if err := s.Lookahead(0, hidden(0)); !errors.Is(err, runtime.ErrClosed) {
		t.Errorf("closed: got %v, want %v", err, runtime.ErrClosed)
	}
	m := open(t, 16, device.Model{}, runtime.Options{})
	defer m.Close()
	if err := m.NewSession().Lookahead(0, hidden(0)); !errors.Is(err, layout.ErrNoRouters) {
		t.Errorf("source without routers: got %v, want %v", err, layout.ErrNoRouters)
	}
	cp.Routers, cp.NoRouters = nil, "its gates are Q2_K"
	bare := looking(t, sourceOf(t, fsys, cp, false), runtime.Options{})
	defer bare.Close()
	if err := bare.NewSession().Lookahead(0, hidden(0)); !errors.Is(err, layout.ErrNoRouters) || !strings.Contains(err.Error(), "Q2_K") {
		t.Errorf("checkpoint without routers: got %v, want %v with the reason", err, layout.ErrNoRouters)
	}
}

// A router that cannot be loaded ends look-ahead, is told by the next call and
// in the log, and stops nothing.
func TestLookaheadWhoseRoutersFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(memfs.Options{})
		cp := routerModel(t, mem)
		fsys := faultfs.New(mem)
		sourceOf(t, mem, cp, true).Close()
		store, err := layout.OpenStore(fsys, "/m", layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		rt := looking(t, store, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer rt.Close()
		fsys.Add(faultfs.Rule{Op: faultfs.ReadAt, Name: "router.safetensors", Kind: faultfs.Flip, Bit: 9})
		s := rt.NewSession()
		if err := s.Lookahead(0, hidden(1)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var damage *layout.CorruptError
		if err := s.Lookahead(0, hidden(1)); !errors.As(err, &damage) || damage.Path != "/m/router.safetensors" {
			t.Errorf("got %v, want damage of the router file", err)
		}
		if !strings.Contains(log.String(), "look-ahead is off") {
			t.Errorf("log: got %q, want a word of it", log.String())
		}
		use, err := s.Use(t.Context(), 0, choose(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		defer use.Release()
		if err := use.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Whatever is hinted, by several sessions at once, the runner gets the experts it
// asked for, each with its own bytes.
func TestRandomHintsChangeNothing(t *testing.T) {
	m := open(t, 12, device.Model{}, runtime.Options{})
	defer m.Close()
	var wait sync.WaitGroup
	for seed := range uint64(3) {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 5))
			s := m.NewSession()
			defer s.Close()
			for range 60 {
				for layer := range small.Layers {
					for range rng.IntN(4) {
						ids, p := make([]int32, rng.IntN(20)), make([]float32, rng.IntN(20))
						for i := range ids {
							ids[i] = int32(rng.IntN(24) - 4)
						}
						for i := range p {
							p[i] = math.Float32frombits(rng.Uint32())
						}
						if rng.IntN(2) == 0 {
							p = p[:min(len(p), len(ids))]
							ids = ids[:len(p)]
						}
						s.Hint(rng.IntN(6)-1, ids, p)
					}
					serve(t, m, s, layer, wander(rng, small, small.TopK))
				}
			}
		})
	}
	wait.Wait()
	if st := m.Stats(); st.Hints.Told == 0 || st.Hints.Refused == 0 || st.Lookups != 3*60*int64(small.Layers*small.TopK) {
		t.Errorf("got %+v and %d lookups", st.Hints, st.Lookups)
	}
}

// In the steady state neither hints nor look-aheads allocate, on the runner's
// goroutine or on the forecaster's.
func TestHintsDoNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fsys := memfs.New(memfs.Options{})
		cp := routerModel(t, fsys)
		rt := looking(t, sourceOf(t, fsys, cp, true), runtime.Options{})
		defer rt.Close()
		s := rt.NewSession()
		state, ids, p := hidden(5), []int32{3, 9, 11}, []float32{0.5, 0.4, 0.1}
		pass := func() {
			s.Step(trace.Decode, nil)
			s.Hint(0, ids, p)
			s.Hint(3, ids, nil)
			if err := s.Lookahead(0, state); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		for range 200 {
			pass()
		}
		if got := testing.AllocsPerRun(100, pass); got != 0 {
			t.Errorf("got %v allocations a pass, want 0", got)
		}
		if st := rt.Stats().Hints; st.Lost != 0 {
			t.Errorf("%d hints lost: the test does not test what it says", st.Lost)
		}
	})
}

// BenchmarkHint is what a hint of 16 ids costs the runner's goroutine; lost/op
// says how many the forecaster had no time for, which cost less.
func BenchmarkHint(b *testing.B) {
	m := open(b, 16, device.Model{}, runtime.Options{})
	defer m.Close()
	s := m.NewSession()
	ids, p := make([]int32, 16), make([]float32, 16)
	for e := range ids {
		ids[e], p[e] = int32(e), 0.1
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Hint(2, ids, p)
	}
	st := m.Stats().Hints
	b.ReportMetric(float64(st.Lost)/float64(st.Lost+st.Told), "lost/op")
}
