// Custompredictor forecasts the router by a rule of its own, and compares it
// with the built-in forecast on a real routing trace: what the predictor says
// decides what is read ahead and what is kept, never what a runner computes.
// Run it from the repository's root:
//
//	go run ./examples/custompredictor
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

const (
	modelPath = "testdata/tinymoe/tinymoe-q8_0.gguf"
	tracePath = "testdata/traces/tinymoe-2000.jsonl.gz"
	tokens    = 500
)

// lastTokens expects a layer to use what it used in the last few tokens. It
// learns nothing that sequences could share, so its state is in the histories.
type lastTokens struct {
	shape layout.Shape
}

// Name implements router.Predictor.
func (p *lastTokens) Name() string { return "last-tokens" }

// NewHistory implements router.Predictor.
func (p *lastTokens) NewHistory() router.History {
	h := &history{use: make([][]float32, p.shape.Layers)}
	for l := range h.use {
		h.use[l] = make([]float32, p.shape.Experts)
	}
	return h
}

// history keeps a fading mark for each expert: 1 when it was used by the last
// token, less for each token since.
type history struct {
	use [][]float32
}

// Begin implements router.History; this rule needs neither phase nor tokens.
func (h *history) Begin(trace.Phase, []int32) {}

// Observe implements router.History.
func (h *history) Observe(layer int, choices []router.Choice) {
	for i := range h.use[layer] {
		h.use[layer][i] *= 0.7
	}
	for _, c := range choices {
		for _, e := range c.Experts {
			h.use[layer][e] = 1
		}
	}
}

// Score implements router.History: at best an even chance.
func (h *history) Score(layer int, dst []float32) {
	for i, mark := range h.use[layer] {
		dst[i] = 0.5 * mark
	}
}

var (
	_ router.Predictor = (*lastTokens)(nil)
	_ router.History   = (*history)(nil)
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "custompredictor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	file, err := trace.OpenFile(tracePath)
	if err != nil {
		return err
	}
	defer file.Close()
	routing, err := trace.ReadAll(file, tokens)
	if err != nil {
		return err
	}
	shape := routing.Header.Shape
	online, err := router.NewOnline(shape, router.OnlineOptions{})
	if err != nil {
		return err
	}
	var sums []uint64
	for _, p := range []router.Predictor{&lastTokens{shape: shape}, online} {
		sum, stats, err := serve(ctx, p, routing)
		if err != nil {
			return err
		}
		sums = append(sums, sum)
		fmt.Fprintf(out, "%-12s %4.1f %% of the experts were in memory, %5.1f µs stall a token\n",
			p.Name(), 100*stats.HitRate(), float64(stats.StallPerToken().Nanoseconds())/1000)
	}
	if sums[0] != sums[1] {
		return fmt.Errorf("the predictor changed the weights that were served: %x and %x", sums[0], sums[1])
	}
	fmt.Fprintln(out, "both served the same weights")
	return nil
}

// serve runs the trace through a runtime at a quarter of the expert memory and
// sums up the weights it got.
func serve(ctx context.Context, p router.Predictor, routing *trace.Trace) (uint64, runtime.Stats, error) {
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: 4 << 20, Predictor: p})
	if err != nil {
		return 0, runtime.Stats{}, err
	}
	defer rt.Close()
	s := rt.NewSession()
	defer s.Close()
	var sum uint64
	for t := range routing.Len() {
		s.Step(trace.Decode, nil)
		for layer := range routing.Header.Shape.Layers {
			ids, weights := routing.Row(t, layer)
			use, err := s.Use(ctx, layer, []router.Choice{{Experts: ids, Weights: weights}})
			if err != nil {
				return 0, runtime.Stats{}, err
			}
			if err := use.Wait(ctx); err != nil {
				return 0, runtime.Stats{}, err
			}
			for _, id := range ids {
				ex, _ := use.Expert(int(id))
				sum += checksum(ex)
			}
			use.Release()
		}
	}
	return sum, rt.Stats(), nil
}

// checksum stands for the computing that a runner would do with the weights.
func checksum(ex runtime.Expert) uint64 {
	var sum uint64
	for i := 0; ; i++ {
		weights, ok := ex.At(i)
		if !ok {
			return sum
		}
		for _, b := range weights.Data {
			sum = sum*31 + uint64(b)
		}
	}
}
