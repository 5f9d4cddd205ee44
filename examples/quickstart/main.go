// Quickstart is the smallest runner: it opens a model, tells the runtime what
// a router chose, and gets the weights of those experts. Here the router is
// made up; in a runner it is the model's. Run it from the repository's root:
//
//	go run ./examples/quickstart [MODEL.gguf | STORE]
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

func main() {
	model := "testdata/tinymoe/tinymoe-q8_0.gguf"
	if len(os.Args) > 1 {
		model = os.Args[1]
	}
	if err := run(context.Background(), os.Stdout, model); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, model string) error {
	rt, err := runtime.Open(ctx, model, runtime.Options{BudgetBytes: 8 << 20})
	if err != nil {
		return err
	}
	defer rt.Close()
	s := rt.NewSession() // one sequence
	defer s.Close()
	var got int64
	const tokens = 20
	for token := range int32(tokens) {
		s.Step(trace.Decode, []int32{token}) // optional: reads can start before layer 0
		for layer := range rt.Shape().Layers {
			choice := router.Choice{Experts: madeUpRouter(rt, token, layer)}
			use, err := s.Use(ctx, layer, []router.Choice{choice})
			if err != nil {
				return err
			}
			for ex, err := range use.Ready(ctx) { // in the order they arrive
				if err != nil {
					return err
				}
				for i := range rt.Record(layer) {
					weights, _ := ex.At(i) // weights.Data: valid until Release
					got += int64(len(weights.Data))
				}
			}
			use.Release()
		}
	}
	return report(out, rt, got, tokens)
}

// madeUpRouter chooses top-k experts, mostly the same ones from token to token.
func madeUpRouter(rt *runtime.Runtime, token int32, layer int) []int32 {
	shape := rt.Shape()
	ids := make([]int32, shape.TopK)
	for i := range ids {
		ids[i] = (int32(layer*7+i*5) + token/4) % int32(shape.Experts)
	}
	return ids
}

// report checks that every expert came whole, and says what it took.
func report(out io.Writer, rt *runtime.Runtime, got, tokens int64) error {
	var want int64
	for layer := range rt.Shape().Layers {
		for _, p := range rt.Record(layer) {
			want += p.Bytes * int64(rt.Shape().TopK) * tokens
		}
	}
	if got != want {
		return fmt.Errorf("got %d bytes of weights, want %d", got, want)
	}
	st := rt.Stats()
	fmt.Fprintf(out, "%d tokens, %d bytes of weights served\n", st.Tokens, got)
	fmt.Fprintf(out, "memory: at most %d of %d bytes allowed\n", st.Memory.Peak, st.Memory.Budget)
	if st.Memory.Peak > st.Memory.Budget {
		return fmt.Errorf("the budget was exceeded")
	}
	return nil
}
