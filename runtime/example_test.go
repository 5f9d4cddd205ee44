package runtime_test

import (
	"context"
	"fmt"
	"os"

	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// The shipped model; any GGUF file or store works.
const modelPath = "../testdata/tinymoe/tinymoe-q8_0.gguf"

// Open a model in a quarter of its expert memory and get the weights of the
// experts that a router chose.
func Example() {
	ctx := context.Background()
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: 8 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	s := rt.NewSession() // one sequence
	defer s.Close()

	s.Step(trace.Decode, []int32{71})
	use, err := s.Use(ctx, 0, []router.Choice{{Experts: []int32{5, 14, 4, 24}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer use.Release()
	experts, weights := 0, 0
	for ex, err := range use.Ready(ctx) { // in the order they arrive
		if err != nil {
			fmt.Println(err)
			return
		}
		up, _ := ex.Projection("up") // up.Data is valid until use.Release
		experts, weights = experts+1, weights+len(up.Data)
	}
	up := rt.Record(0)[1]
	fmt.Println(experts, "experts;", up.Name, up.Type, up.Dims, weights/experts, "bytes each")
	// Output: 4 experts; up Q8_0 [256 64] 17408 bytes each
}

// Wait instead of Ready, and ask for experts by their number.
func ExampleUse_Wait() {
	ctx := context.Background()
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: 8 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	s := rt.NewSession()
	defer s.Close()
	use, err := s.Use(ctx, 3, []router.Choice{{Experts: []int32{9, 2}}, {Experts: []int32{2, 30}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer use.Release()
	if err := use.Wait(ctx); err != nil {
		fmt.Println(err)
		return
	}
	for _, number := range []int{2, 9, 30} {
		ex, ok := use.Expert(number)
		fmt.Println(ex.ID(), ok)
	}
	// Output:
	// layer 3 expert 2 true
	// layer 3 expert 9 true
	// layer 3 expert 30 true
}

// A pass that needs more experts than the budget holds is served in waves:
// each expert is released when it is computed.
func ExampleExpert_Release() {
	ctx := context.Background()
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: 400 << 10}) // about 5 experts
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	s := rt.NewSession()
	defer s.Close()
	prompt := make([]router.Choice, 8)
	for i := range prompt {
		prompt[i].Experts = []int32{int32(4 * i), int32(4*i + 1), int32(4*i + 2), int32(4*i + 3)}
	}
	use, err := s.Use(ctx, 0, prompt)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer use.Release()
	n := 0
	for ex, err := range use.Ready(ctx) {
		if err != nil {
			fmt.Println(err)
			return
		}
		n++ // compute it for all tokens that chose it, then:
		ex.Release()
	}
	st := rt.Stats().Memory
	fmt.Println(n, "experts, within the budget:", st.Peak <= st.Budget)
	// Output: 32 experts, within the budget: true
}

// Record what the routers chose, for replay and simulation.
func ExampleSession_Record() {
	ctx := context.Background()
	rt, err := runtime.Open(ctx, modelPath, runtime.Options{BudgetBytes: 8 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	header := rt.TraceHeader()
	header.Weights = false // this runner does not tell gate weights
	w, err := trace.NewJSONLWriter(os.Stdout, header)
	if err != nil {
		fmt.Println(err)
		return
	}
	s := rt.NewSession()
	s.Record(w)
	s.Step(trace.Decode, []int32{71})
	for layer := range rt.Shape().Layers {
		use, err := s.Use(ctx, layer, []router.Choice{{Experts: []int32{1, 2, 3, 4}}})
		if err != nil {
			fmt.Println(err)
			return
		}
		use.Release()
	}
	s.Close()
	w.Close()
	// Output:
	// {"model":"tinymoe","layers":8,"experts":32,"top_k":4,"source":"outrider"}
	// {"seq":0,"pos":0,"phase":"decode","experts":[[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4]],"token":71}
}
