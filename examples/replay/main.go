// Replay sends a recorded routing trace through the runtime without a model:
// the same experts are read as in the recorded run, once keeping what was used
// last, once by forecast. It builds a store first, as an operator would. Run it
// from the repository's root:
//
//	go run ./examples/replay
package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"time"

	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

const (
	modelPath = "testdata/tinymoe/tinymoe-q8_0.gguf"
	tracePath = "testdata/traces/tinymoe-2000.jsonl.gz"
	tokens    = 1000
	topK      = 4                      // of tinymoe
	compute   = 100 * time.Microsecond // what a layer of the model would take
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "outrider-replay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store := filepath.Join(dir, "tinymoe.outrider")
	if err := buildStore(ctx, store); err != nil {
		return err
	}
	arms := []struct {
		name    string
		options runtime.Options
	}{
		{"lru", runtime.Options{Keep: runtime.KeepLRU}},
		{"forecast", runtime.Options{}},
	}
	var sums []uint32
	var hits []float64
	for _, arm := range arms {
		sum, stats, err := replay(ctx, store, arm.options)
		if err != nil {
			return err
		}
		sums, hits = append(sums, sum), append(hits, stats.HitRate())
		fmt.Fprintf(out, "%-9s hits %4.1f %%, stall %6.1f µs a token, speculative reads: %d, of them used: %d\n",
			arm.name, 100*stats.HitRate(), float64(stats.StallPerToken().Nanoseconds())/1000,
			stats.Reads.Issued, stats.Reads.Useful)
	}
	if sums[0] != sums[1] {
		return errors.New("the two arms served different weights")
	}
	if hits[1] <= hits[0] {
		return fmt.Errorf("the forecast hit %.3f, recency %.3f: want more", hits[1], hits[0])
	}
	fmt.Fprintln(out, "both arms served the same weights")
	return nil
}

func buildStore(ctx context.Context, dir string) error {
	fsys := layout.OS()
	cp, err := checkpoint.Read(fsys, modelPath)
	if err != nil {
		return err
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		return err
	}
	_, err = layout.Build(ctx, layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: &cp})
	return err
}

// replay serves the trace at a quarter of the expert memory and returns a
// checksum of all weights in the order in which a model would use them.
func replay(ctx context.Context, store string, o runtime.Options) (uint32, runtime.Stats, error) {
	file, err := trace.OpenFile(tracePath)
	if err != nil {
		return 0, runtime.Stats{}, err
	}
	defer file.Close()
	o.BudgetBytes = 4 << 20
	rt, err := runtime.Open(ctx, store, o)
	if err != nil {
		return 0, runtime.Stats{}, err
	}
	defer rt.Close()
	s := rt.NewSession()
	defer s.Close()
	var sum uint32
	var a trace.Activation
	for range tokens {
		if err := file.Next(&a); err != nil {
			return 0, runtime.Stats{}, err
		}
		s.Step(trace.Decode, []int32{a.Token})
		for layer := range rt.Shape().Layers {
			if sum, err = serve(ctx, s, layer, &a, sum); err != nil {
				return 0, runtime.Stats{}, err
			}
		}
	}
	return sum, rt.Stats(), nil
}

func serve(ctx context.Context, s *runtime.Session, layer int, a *trace.Activation, sum uint32) (uint32, error) {
	ids, weights := a.Row(layer, topK)
	use, err := s.Use(ctx, layer, []router.Choice{{Experts: ids, Weights: weights}})
	if err != nil {
		return 0, err
	}
	defer use.Release()
	if err := use.Wait(ctx); err != nil {
		return 0, err
	}
	time.Sleep(compute)
	for _, id := range ids {
		ex, _ := use.Expert(int(id))
		for i := range 3 {
			w, _ := ex.At(i)
			sum = crc32.Update(sum, crc32.IEEETable, w.Data)
		}
	}
	return sum, nil
}
