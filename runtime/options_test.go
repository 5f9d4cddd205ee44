package runtime_test

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
	"outrider/layout/drive"
	"outrider/prefetcher"
	"outrider/runtime"
	"outrider/trace"
)

// proofs has for each option what shows that it does something. An option that
// does nothing has been the ruin of many a comparison.
var proofs = map[string]func(t *testing.T){
	"BudgetBytes": func(t *testing.T) {
		m := open(t, 5, device.Model{}, runtime.Options{})
		defer m.Close()
		if got := m.Stats().Budget; got != 5*slotBytes {
			t.Errorf("budget %d, want %d", got, 5*slotBytes)
		}
	},
	"FixedBudget": TestFixedBudgetIsFixed,
	"Keep": func(t *testing.T) {
		for keep, forecasts := range map[runtime.Keep]bool{runtime.KeepForecast: true, runtime.KeepLRU: false} {
			m := open(t, 5, device.Model{}, runtime.Options{Keep: keep})
			if (m.Predictor() != nil) != forecasts {
				t.Errorf("rule %d: predictor %v, want one: %t", keep, m.Predictor(), forecasts)
			}
			m.Close()
		}
	},
	"Order": TestOrderRanksWhatIsKept,
	"Predictor": func(t *testing.T) {
		m := open(t, 5, device.Model{}, runtime.Options{Predictor: &knowing{shape: small}})
		defer m.Close()
		if got := m.Predictor().Name(); got != "knowing" {
			t.Errorf("got predictor %q, want the one given", got)
		}
	},
	"NoSpeculation": func(t *testing.T) {
		for _, off := range []bool{false, true} {
			st := play(t, 1, runtime.Options{Predictor: &knowing{shape: small}, NoSpeculation: off})
			if (st.Reads.Issued == 0) != off {
				t.Errorf("NoSpeculation %t: %d speculative reads", off, st.Reads.Issued)
			}
		}
	},
	"Horizon": func(t *testing.T) {
		near, far := queued(t, runtime.Options{Horizon: 1}), queued(t, runtime.Options{Horizon: 3})
		if near == 0 || far <= near {
			t.Errorf("%d reads ahead wanted over 1 layer, %d over 3: want more", near, far)
		}
	},
	"LookaheadLayers": TestLookaheadBringsExperts,
	"Depth": func(t *testing.T) {
		for _, depth := range []int{1, 3} {
			if at, _ := reading(t, runtime.Options{Depth: depth}); at != depth {
				t.Errorf("depth %d: %d reads at once", depth, at)
			}
		}
	},
	"Block": func(t *testing.T) {
		if _, reads := reading(t, runtime.Options{Block: 4096}); reads != 8*slotBytes/4096 {
			t.Errorf("eight experts took %d reads, want %d", reads, 8*slotBytes/4096)
		}
	},
	"SilentAfter": func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			hangs := device.Model{Rule: func(device.Op) device.Effect { return device.Effect{Delay: 24 * time.Hour} }}
			m := open(t, 8, hangs, runtime.Options{NoSpeculation: true, SilentAfter: time.Second})
			start := time.Now()
			use, err := m.NewSession().Use(t.Context(), 0, choose(0))
			if err != nil {
				t.Fatal(err)
			}
			if err := use.Wait(t.Context()); !errors.Is(err, prefetcher.ErrNoAnswer) || time.Since(start) != time.Second {
				t.Errorf("got %v after %v, want %v after 1s", err, time.Since(start), prefetcher.ErrNoAnswer)
			}
			use.Release()
			m.drive.Remove()
			m.Close()
		})
	},
	"Projections": TestProjectionsComeAsTheyArrive,
	"Drive": func(t *testing.T) {
		profile := &drive.Profile{Path: "nvme0", Depth: 3, BlockBytes: 4096, BytesPerSecond: 1e9}
		if at, _ := reading(t, runtime.Options{Drive: profile}); at != 3 {
			t.Errorf("%d reads at once, want the 3 that the profile recommends", at)
		}
		m := open(t, 5, device.Model{}, runtime.Options{Drive: profile})
		defer m.Close()
		if got := m.Stats().Reads.Lanes[0].BytesPerSecond; got != 1e9 {
			t.Errorf("the lane is thought to give %g bytes a second, want the profile's", got)
		}
		if at, reads := reading(t, runtime.Options{Drive: profile, Depth: 2, Block: slotBytes}); at != 2 || reads != 8 {
			t.Errorf("%d reads, %d at once: want what was given beside the profile, 8 and 2", reads, at)
		}
	},
	"Engine": func(t *testing.T) {
		if got := engine(t, runtime.Options{Engine: layout.PreadEngine}); got != layout.EnginePread && got != layout.EngineBuffered {
			t.Errorf("asked for pread: got %s", got)
		}
		ring, err := layout.OpenRing(layout.RingOptions{})
		if err != nil {
			rt, err := runtime.Open(t.Context(), modelPath, runtime.Options{BudgetBytes: 8 << 20, Engine: layout.RingEngine})
			if err == nil {
				rt.Close()
				t.Error("asked for io_uring where there is none, and got no error")
			}
			return
		}
		ring.Close()
		if got := engine(t, runtime.Options{Engine: layout.RingEngine}); got != layout.EngineRing && got != layout.EngineBuffered {
			t.Errorf("asked for io_uring: got %s", got)
		}
	},
	"Buffered": func(t *testing.T) {
		if got := engine(t, runtime.Options{Buffered: true}); got != layout.EngineBuffered {
			t.Errorf("got engine %s, want %s", got, layout.EngineBuffered)
		}
	},
	"FS": func(t *testing.T) {
		fsys := &countingFS{FS: layout.OS()}
		engine(t, runtime.Options{FS: fsys})
		if fsys.opened.Load() == 0 {
			t.Error("nothing was opened through it")
		}
	},
	"Placement": TestFixedPlacementIsAStack,
	"Stacked":   TestStackedMemoryOfTheRunner,
	"Lock":      func(t *testing.T) { proveLock(t) },
	"Logger": func(t *testing.T) {
		var log bytes.Buffer
		open(t, 5, device.Model{}, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}).Close()
		if log.Len() == 0 {
			t.Error("it was told nothing")
		}
	},
	"Poison": TestPoisonOverwritesWhatIsDropped,
}

func TestEveryOptionHasAnEffect(t *testing.T) {
	fields := make(map[string]bool)
	for field := range reflect.TypeFor[runtime.Options]().Fields() {
		if !field.IsExported() {
			continue
		}
		fields[field.Name] = true
		prove, ok := proofs[field.Name]
		if !ok {
			t.Errorf("option %s has no proof that it does anything", field.Name)
			continue
		}
		t.Run(field.Name, prove)
	}
	for name := range proofs {
		if !fields[name] {
			t.Errorf("there is a proof of %s, which is no option", name)
		}
	}
}

// queued is how many reads ahead wait behind one that hangs.
func queued(t *testing.T, o runtime.Options) (n int) {
	synctest.Test(t, func(t *testing.T) {
		o.Predictor, o.Depth = &knowing{shape: small}, 1
		m := open(t, 16, hung, o)
		m.NewSession().Step(trace.Decode, []int32{3})
		synctest.Wait()
		n = m.Stats().Reads.Queued
		m.drive.Remove()
		m.Close()
	})
	return n
}

// reading is how many reads of eight experts go on at once, and how many there are:
// one an expert, unless a block is given.
func reading(t *testing.T, o runtime.Options) (atOnce, reads int) {
	synctest.Test(t, func(t *testing.T) {
		o.NoSpeculation = true
		if o.Block == 0 && o.Drive == nil {
			o.Block = slotBytes
		}
		m := open(t, 16, slow, o)
		defer m.Close()
		serve(t, m, m.NewSession(), 0, []int32{0, 1, 2, 3, 4, 5, 6, 7})
		st := m.drive.Stats()
		atOnce, reads = st.Peak, int(st.Reads)
	})
	return atOnce, reads
}

// engine is how the shipped model is read.
func engine(t *testing.T, o runtime.Options) string {
	t.Helper()
	o.BudgetBytes = 8 << 20
	rt, err := runtime.Open(t.Context(), modelPath, o)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	return rt.Stats().Lanes[0].Engine
}

type countingFS struct {
	layout.FS
	opened atomic.Int64
}

func (f *countingFS) Open(name string, mode layout.Mode) (layout.File, error) {
	f.opened.Add(1)
	return f.FS.Open(name, mode)
}

// Memory of experts that were dropped reads as 0xDB until the next one is there.
func TestPoisonOverwritesWhatIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(op device.Op) device.Effect {
			if op.Offset >= int64(small.Experts)*slotBytes { // layer 1
				return device.Effect{Delay: time.Hour}
			}
			return device.Effect{}
		}
		m := open(t, 2, device.Model{Rule: hang}, runtime.Options{NoSpeculation: true, Poison: true})
		s := m.NewSession()
		use, err := s.Use(t.Context(), 0, choose(1, 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := use.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		ex, _ := use.Expert(1)
		up, _ := ex.Projection("up")
		use.Release()
		next, err := s.Use(t.Context(), 1, choose(3, 4))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := bytes.Count(up.Data, []byte{0xDB}); n < len(up.Data)*3/4 {
			t.Errorf("%d of %d bytes are overwritten, want nearly all", n, len(up.Data))
		}
		next.Release()
		m.drive.Remove()
		m.Close()
	})
}

// Options that contradict each other or what is opened are refused, not resolved
// without a word.
func TestOptionsThatAreRefused(t *testing.T) {
	profile := func(depth int, block int64) *drive.Profile {
		return &drive.Profile{Path: "d", Depth: depth, BlockBytes: block}
	}
	for _, tt := range []struct {
		o    runtime.Options
		want string
	}{
		{runtime.Options{Depth: -1}, "depth is -1"},
		{runtime.Options{Depth: 1025}, "depth is 1025"},
		{runtime.Options{Depth: -2}, "depth is -2"},
		{runtime.Options{Block: 1000}, "blocks of 1000 bytes"},
		{runtime.Options{Block: -4096}, "blocks of -4096 bytes"},
		{runtime.Options{Engine: 9}, "unknown engine 9"},
		{runtime.Options{Engine: layout.RingEngine, Buffered: true}, "leave one of them out"},
		{runtime.Options{Engine: layout.PreadEngine, FS: layout.OS()}, "leave one of them out"},
		{runtime.Options{Placement: 7}, "unknown placement 7"},
		{runtime.Options{Stacked: func(layout.Shape, []int64) (experts.Stacked, error) { return nil, nil }}, "set Placement to PlacementFixed"},
		{runtime.Options{Drive: profile(0, 4096)}, "probe it again"},
		{runtime.Options{Drive: profile(4, 1000)}, "probe it again"},
		{runtime.Options{Drive: &drive.Profile{Path: "two", Depth: 4, BlockBytes: 4096, Lanes: make([]drive.Profile, 2)}}, "profile is of 2 lanes (two), the model has 1"},
		// Of no effect on a source that is open.
		{runtime.Options{FS: layout.OS()}, "FS has no effect"},
		{runtime.Options{Buffered: true}, "Buffered has no effect"},
		{runtime.Options{Engine: layout.PreadEngine}, "Engine has no effect"},
	} {
		records, err := device.NewRecords(device.RecordsOptions{Shape: small})
		if err != nil {
			t.Fatal(err)
		}
		tt.o.BudgetBytes = 8 * slotBytes
		rt, err := runtime.New(records, tt.o)
		if err == nil {
			rt.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want %q", tt.o, err, tt.want)
		}
	}
}

// With no options at all it does what it is for: forecasts, reads ahead, keeps by
// the forecast, and reads around the page cache where the disk allows it.
func TestDefaultsStream(t *testing.T) {
	var log bytes.Buffer
	rt, err := runtime.Open(t.Context(), modelPath, runtime.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if errors.Is(err, experts.ErrNoAutoBudget) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	st := rt.Stats()
	if rt.Predictor() == nil || st.Reads.Mode.String() != "on" || st.Budget < st.Memory.Cycle {
		t.Errorf("predictor %v, speculation %v, budget %d: want a forecast that is acted on, and memory", rt.Predictor(), st.Reads.Mode, st.Budget)
	}
	f, err := layout.OS().Open(modelPath, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if direct := f.Direct() != (layout.Alignment{}); st.Lanes[0].Direct != direct {
		t.Errorf("direct %t, the disk allows %t", st.Lanes[0].Direct, direct)
	}
	for _, want := range []string{"forecast=online", "keep=forecast", "speculation=true", "placement=pooled", "engine=", "depth=", "block_bytes=", "budget_follows_pressure="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, log.String())
		}
	}
}
