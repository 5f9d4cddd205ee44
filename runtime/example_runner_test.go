package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// runner is an engine with a loop of its own over the layers. What it computes is
// made up; docs/embedding.md goes through how it gets its experts.
type runner struct {
	rt      *runtime.Runtime
	session *runtime.Session // one sequence
	looks   bool             // ahead
	began   bool             // the pass has used a layer
	sum     uint64           // of all that was computed
}

// pass computes one token, or one chunk of a prompt. A pass that fails leaves
// nothing behind.
func (r *runner) pass(ctx context.Context, phase trace.Phase, tokens []int32) error {
	r.session.Step(phase, tokens) // reads for layer 0 can start now
	r.began = false
	for layer := range r.rt.Shape().Layers {
		hidden := r.attention(layer, tokens) // what the router sees
		if r.looks && len(tokens) == 1 {
			r.looks = r.session.Lookahead(layer, hidden) == nil
		}
		if err := r.experts(ctx, layer, r.route(layer, tokens)); err != nil {
			return errors.Join(err, r.undo(len(tokens)))
		}
	}
	return nil
}

// experts computes each expert as it arrives, for all tokens that chose it, and
// adds up in the order of the router's choice: sums of floats depend on the order.
func (r *runner) experts(ctx context.Context, layer int, choices []router.Choice) error {
	use, err := r.session.Use(ctx, layer, choices)
	if err != nil {
		return err
	}
	defer use.Release()
	r.began = true
	outputs := map[int32]uint64{}
	for ex, err := range use.Ready(ctx) {
		if err != nil {
			return err // names file, offset, layer and expert
		}
		outputs[int32(ex.Index())] = compute(ex, len(r.rt.Record(layer)))
		ex.Release() // its memory may go to the next expert of a large pass
	}
	for _, c := range choices {
		for _, e := range c.Experts {
			r.sum = r.sum*31 + outputs[e]
		}
	}
	return nil
}

// undo takes back the tokens of a pass that failed, here and in the runner's own
// state. They count from the first use of the pass on.
func (r *runner) undo(tokens int) error {
	if !r.began {
		return nil
	}
	return r.session.Rollback(tokens)
}

// compute stands for the kernels: the projections lie one by one in memory.
func compute(ex runtime.Expert, projections int) uint64 {
	sum := fnv.New64a()
	for i := range projections {
		weights, _ := ex.At(i) // valid until ex or its use is released
		sum.Write(weights.Data)
	}
	return sum.Sum64()
}

// attention stands for all that comes before a layer's router.
func (r *runner) attention(layer int, tokens []int32) []float32 {
	hidden := make([]float32, 64) // the width of the shipped model
	for i := range hidden {
		hidden[i] = float32((layer+i)*int(tokens[0])%17) / 17
	}
	return hidden
}

// route stands for the router: top-k experts and gate weights of each token.
func (r *runner) route(layer int, tokens []int32) []router.Choice {
	return madeUp(r.rt.Shape().TopK, r.rt.Shape().Experts, layer, tokens)
}

func madeUp(topK, experts, layer int, tokens []int32) []router.Choice {
	choices := make([]router.Choice, len(tokens))
	for t, token := range tokens {
		for i := range topK {
			choices[t].Experts = append(choices[t].Experts, (token*3+int32(layer*7+i*5))%int32(experts))
			choices[t].Weights = append(choices[t].Weights, 1/float32(topK))
		}
	}
	return choices
}

// text runs a prompt and some tokens, and returns the sum of what was computed.
func text(ctx context.Context, budget int64) (uint64, error) {
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: budget, Poison: true})
	if err != nil {
		return 0, err
	}
	defer rt.Close()
	r := &runner{rt: rt, session: rt.NewSession(), looks: true}
	defer r.session.Close()
	if err := r.pass(ctx, trace.Prefill, []int32{71, 4, 19, 8, 33, 2, 60, 11}); err != nil {
		return 0, err
	}
	for token := range int32(16) {
		if err := r.pass(ctx, trace.Decode, []int32{token}); err != nil {
			return 0, err
		}
	}
	return r.sum, nil
}

// A runner with a loop of its own computes the same with all experts in memory
// and with four.
func Example_runner() {
	ctx := context.Background()
	all, err := text(ctx, 16<<20)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = text(ctx, 1)
	fmt.Println(err)
	least, err := text(ctx, 229376)
	fmt.Println(least == all, err)
	// Output:
	// runtime: open ../testdata/tinymoe/tinymoe-q8_0.gguf: experts: budget is below the floor: 1 bytes given, one layer of one token needs 229376; raise the budget to at least that
	// true <nil>
}

// Sequences that are decoded together go into one use.
func Example_batch() {
	ctx := context.Background()
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: 8 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	a, b := rt.NewSession(), rt.NewSession()
	defer a.Close()
	defer b.Close()
	a.Step(trace.Decode, []int32{71})
	b.Step(trace.Decode, []int32{12})
	use, err := rt.Use(ctx, 0, []runtime.Routed{
		{Session: a, Choices: []router.Choice{{Experts: []int32{5, 14, 4, 24}}}},
		{Session: b, Choices: []router.Choice{{Experts: []int32{5, 30, 4, 1}}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer use.Release()
	fmt.Println(use.Len(), "experts for both")
	// Output: 6 experts for both
}
