package replay_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outrider/internal/dummystore"
	"outrider/internal/mmaparm"
	"outrider/internal/passes"
	"outrider/internal/replay"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/trace/synth"

	"outrider/trace"
)

// TestMain is the mmap arm's process when a test starts it as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "mmap-serve" {
		if err := mmaparm.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newBench(t *testing.T, tokens int) *replay.Bench {
	t.Helper()
	shape := layout.Shape{Layers: 4, Experts: 16, TopK: 2}
	stream, err := synth.New(synth.Markov, synth.Options{Shape: shape, Tokens: tokens, Sequences: 3, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := trace.ReadAll(stream, 0)
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "dummy.outrider")
	if _, err := dummystore.Build(t.Context(), dummystore.Options{Shape: shape, RecordBytes: 64 << 10, Dir: store}); err != nil {
		t.Fatal(err)
	}
	return &replay.Bench{
		Trace: tr, Layer: 200 * time.Microsecond, Rounds: 2, Exe: os.Args[0], Args: []string{"mmap-serve"},
		Open: func() (layout.Source, error) {
			m, err := checkpoint.Open(layout.OS(), store, layout.Direct)
			if err != nil {
				return nil, err
			}
			return m.Source, nil
		},
		Files: []string{filepath.Join(store, "lane-0.bin")},
	}
}

const quarter = 16 * 68 << 10 // of the 64 experts

func TestBenchPlaysEveryArm(t *testing.T) {
	b := newBench(t, 60)
	var last, total int64
	b.Progress = func(done, all int64) { last, total = done, all }
	cells := []replay.Cell{
		{Run: "lru", BudgetBytes: quarter}, {Run: "online+spec", BudgetBytes: quarter}, {Run: "optimum", BudgetBytes: quarter},
		{Run: "online+next", BudgetBytes: quarter}, {Run: "decayed+spec", BudgetBytes: quarter},
	}
	results, err := b.Run(t.Context(), cells)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != len(cells)+1 || !results[len(cells)].Again || results[len(cells)].Run != "lru" {
		t.Fatalf("got %d results, the last %+v; want one a cell and lru again", len(results), results[len(results)-1])
	}
	if last != total || total != 60*4*(5*2+1) {
		t.Errorf("progress: got %d of %d, want all of %d", last, total, 60*4*11)
	}
	for _, r := range results {
		rounds := 2
		if r.Again {
			rounds = 1
		}
		if len(r.Rounds) != rounds {
			t.Fatalf("%s: got %d rounds, want %d", r.Run, len(r.Rounds), rounds)
		}
		for _, x := range r.Rounds {
			if x.Tokens != 60 || x.Executions != 240 || x.Compute != 240*b.Layer || x.Lookups != 480 || x.Failed != "" {
				t.Errorf("%s: got %+v, want all 60 tokens played", r.Run, x)
			}
			// An expert may arrive between being missed and being asked for.
			if x.Hits+x.DemandReads+x.Late < x.Lookups*95/100 || x.RawExperts == 0 || x.RawBytesPerSecond <= 0 || x.ReadBytes <= 0 {
				t.Errorf("%s: got %+v, want every miss read, and a raw reader's figure", r.Run, x)
			}
			if spec := strings.Contains(r.Run, "+"); !spec && x.SpeculativeReads != 0 {
				t.Errorf("%s: got %d speculative reads, want none", r.Run, x.SpeculativeReads)
			}
		}
	}
	if lru, best := results[0].Rounds[0], results[2].Rounds[0]; best.Hits < lru.Hits {
		t.Errorf("the optimum: got %d hits, want at least those of lru, %d", best.Hits, lru.Hits)
	}
	// Less than 1 where the forecaster was behind and skipped a look ahead.
	if next := results[3].Rounds[0].RecallAtK; next < 0.3 {
		t.Errorf("recall with the next layer known: got %.3f, want far more than chance, 0.125", next)
	}
}

func TestBenchPlaysMmap(t *testing.T) {
	b := newBench(t, 20)
	b.Rounds = 1
	results, err := b.Run(t.Context(), []replay.Cell{{Run: replay.Mmap, BudgetBytes: 4 << 20}})
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("mapping files is measured on Linux only")
	}
	if err != nil {
		t.Fatal(err)
	}
	x := results[0].Rounds[0]
	if x.Failed != "" {
		t.Skip("the arm could not play here: " + x.Failed)
	}
	if x.Tokens != 20 || x.Executions != 80 || x.Stall <= 0 || x.Limit == "" {
		t.Errorf("got %+v, want 20 tokens played with some stall, and a word about the limit", x)
	}
}

func TestBenchEndsWithItsContext(t *testing.T) {
	b := newBench(t, 60)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("enough")
	b.Progress = func(done, _ int64) {
		if done > 100 {
			cancel(stop)
		}
	}
	if _, err := b.Run(ctx, []replay.Cell{{Run: "lru", BudgetBytes: quarter}}); !errors.Is(err, stop) {
		t.Errorf("got %v, want the context's cause", err)
	}
}

func TestBenchRefuses(t *testing.T) {
	b := newBench(t, 10)
	for _, c := range []struct {
		cell replay.Cell
		want string
	}{
		{replay.Cell{Run: "fifo", BudgetBytes: quarter}, `"fifo"`},
		{replay.Cell{Run: "lru", BudgetBytes: 1 << 10}, "needs"},
	} {
		if _, err := b.Run(t.Context(), []replay.Cell{c.cell}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q in it", c.cell, err, c.want)
		}
	}
}

// Waves: a pass that needs more than the budget holds is played all the same.
func TestPlayerPlaysWaves(t *testing.T) {
	b := newBench(t, 30)
	b.Rounds, b.Passes = 1, passes.Options{Batch: 3}
	results, err := b.Run(t.Context(), []replay.Cell{{Run: "online+spec", BudgetBytes: 3 * 68 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	if x := results[0].Rounds[0]; x.Tokens != 30 || x.Passes != 10 {
		t.Errorf("got %d tokens in %d passes, want 30 in 10", x.Tokens, x.Passes)
	}
}
