package refmodel

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"outrider/router"
	"outrider/trace"
)

var someTokens = []int32{71, 101, 32, 49, 10, 200, 3, 71, 71, 9, 250, 13}

func TestForwardAgainstNaive(t *testing.T) {
	wide := smallConfig()
	wide.Heads, wide.KVHeads, wide.TopK, wide.ExpertHidden = 6, 1, 5, 7
	for name, s := range map[string]synthetic{
		"tied":            {config: smallConfig()},
		"separate output": {config: smallConfig(), output: true},
		"fused":           {config: smallConfig(), fused: true},
		"all experts":     {config: wide},
	} {
		path, data := s.write(t)
		model, experts := loadMemory(t, path)
		g := experts.generator(t, model, Options{})
		if err := g.Prefill(context.Background(), someTokens[:5]); err != nil {
			t.Fatal(err)
		}
		if err := g.Decode(context.Background(), someTokens[5:]...); err != nil {
			t.Fatal(err)
		}
		want := naive{s.config, data}.logits(someTokens)
		var worst, largest float64
		for i, v := range g.Logits() {
			worst = max(worst, math.Abs(float64(v)-want[i]))
			largest = max(largest, math.Abs(want[i]))
		}
		if worst > 1e-4*largest {
			t.Errorf("%s: largest logit difference: got %.3g (logits reach %.3g)", name, worst, largest)
		}
		wantPasses := append([]trace.Phase{trace.Prefill}, slices.Repeat([]trace.Phase{trace.Decode}, len(someTokens)-5)...)
		if !slices.Equal(experts.passes, wantPasses) {
			t.Errorf("%s: passes: got %v, want %v", name, experts.passes, wantPasses)
		}
		if tied := !s.output; model.tied() != tied {
			t.Errorf("%s: tied: got %v", name, model.tied())
		}
	}
}

// TestResultsDoNotDepend checks that the order of arrival and the chunk change no bit.
func TestResultsDoNotDepend(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, experts := loadMemory(t, path)
	ctx := context.Background()
	want, err := experts.generator(t, model, Options{}).Transcribe(ctx, someTokens, 20)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		experts.order = func(ids []int32) {
			random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		}
		chunk := int(seed) * 2 % 7
		got, err := experts.generator(t, model, Options{Chunk: chunk}).Transcribe(ctx, someTokens, 20)
		if err != nil {
			t.Fatal(err)
		}
		if d := got.Difference(want); d != "" {
			t.Errorf("seed %d, chunk %d: %s", seed, chunk, d)
		}
	}
	other, err := experts.generator(t, model, Options{}).Transcribe(ctx, someTokens[1:], 20)
	if err != nil {
		t.Fatal(err)
	}
	if other.Difference(want) == "" {
		t.Error("another prompt: got no difference")
	}
}

func TestOnRoute(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, experts := loadMemory(t, path)
	var layers, tokens []int
	g := experts.generator(t, model, Options{Chunk: 8, OnRoute: func(layer int, choices []router.Choice) {
		layers, tokens = append(layers, layer), append(tokens, len(choices))
		for _, c := range choices {
			sum := c.Weights[0] + c.Weights[1]
			if len(c.Experts) != 2 || c.Experts[0] == c.Experts[1] || c.Weights[0] < c.Weights[1] || math.Abs(float64(sum)-1) > 1e-6 {
				t.Errorf("layer %d: got choice %+v", layer, c)
			}
		}
	}})
	if err := g.Prefill(context.Background(), someTokens); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(layers, []int{0, 1, 0, 1}) || !slices.Equal(tokens, []int{8, 8, 4, 4}) {
		t.Errorf("got layers %v with %v tokens, want two passes of 8 and 4 tokens", layers, tokens)
	}
}

// faulty spoils what the memory hands out.
type faulty struct {
	*memory
	silent bool // hands out nothing
	spoil  func(compute func(expert) error) error
}

func (f *faulty) each(ctx context.Context, layer int, choices []router.Choice, compute func(expert) error) error {
	if f.silent {
		return nil
	}
	if err := f.memory.each(ctx, layer, choices, compute); err != nil || f.spoil == nil {
		return err
	}
	return f.spoil(compute)
}

func TestExpertFaults(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	lost := errors.New("drive is gone")
	tests := []struct {
		name  string
		plant func(*faulty)
		want  error
		text  string
	}{
		{"read error", func(f *faulty) { f.spoil = func(func(expert) error) error { return lost } }, lost, "refmodel: block 0: drive is gone"},
		{"twice", func(f *faulty) {
			f.memory.order = func(ids []int32) { copy(ids[1:], ids[:1]) }
		}, ErrExperts, "arrived unasked or twice"},
		{"unasked", func(f *faulty) {
			f.spoil = func(compute func(expert) error) error { return compute(&memoryExpert{index: 99}) }
		}, ErrExperts, "expert 99 arrived unasked"},
		{"did not arrive", func(f *faulty) { f.silent = true }, ErrExperts, "did not arrive"},
		{"no projection", func(f *faulty) {
			for _, e := range f.layers[1] {
				delete(e, "up")
			}
		}, ErrExperts, `no projection "up"`},
		{"wrong dims", func(f *faulty) {
			for _, e := range f.layers[0] {
				w := e["down"]
				w.cols, w.rows = w.rows, w.cols
				e["down"] = w
			}
		}, ErrExperts, `projection "down" has 24 columns, 20 rows`},
		{"not finite", func(f *faulty) {
			for _, e := range f.layers[1] {
				putFloat(e["gate"].data, float32(math.NaN()))
			}
		}, ErrNotFinite, "logit of token 0 at position 11 is NaN (verify the checkpoint)"},
	}
	for _, test := range tests {
		model, experts := loadMemory(t, path)
		f := &faulty{memory: experts}
		g := experts.generator(t, model, Options{})
		test.plant(f)
		g.runner.experts = f
		wantError(t, test.name, g.Prefill(context.Background(), someTokens), test.want, test.text)
		if g.Len() != 0 {
			t.Errorf("%s: sequence after a failed pass: got %d tokens, want 0", test.name, g.Len())
		}
	}
}

// TestPassAfterFault repeats a failed pass: the result is as without the fault.
func TestPassAfterFault(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, experts := loadMemory(t, path)
	ctx := context.Background()
	g := experts.generator(t, model, Options{})
	if err := g.Prefill(ctx, someTokens); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(g.Logits())

	if err := g.Reset(); err != nil {
		t.Fatal(err)
	}
	if err := g.Prefill(ctx, someTokens[:6]); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("drive is gone")
	calls := 0
	g.runner.experts = &faulty{memory: experts, spoil: func(func(expert) error) error {
		if calls++; calls == 2 {
			return lost
		}
		return nil
	}}
	wantError(t, "second layer", g.Prefill(ctx, someTokens[6:]), lost, "block 1")
	if err := g.Prefill(ctx, someTokens[6:]); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.Logits(), want) {
		t.Error("logits after a repeated pass differ")
	}
	canceled, cancel := context.WithCancelCause(ctx)
	cancel(lost)
	wantError(t, "canceled", g.Decode(canceled, 1), lost, "refmodel: block 0")
}

func TestDecodeAllocations(t *testing.T) {
	numericOnly(t)
	model, experts := loadMemory(t, q8Model(t))
	g := experts.generator(t, model, Options{})
	ctx := context.Background()
	if err := g.Decode(ctx, make([]int32, 65)...); err != nil {
		t.Fatal(err)
	}
	token := []int32{5}
	got := testing.AllocsPerRun(10, func() {
		if err := g.Decode(ctx, token...); err != nil {
			t.Fatal(err)
		}
	})
	// What is left is one closure a layer and the test's own source of experts:
	// a growing list of ids, and each expert.
	if limit := float64(model.Config.Blocks * (1 + 1 + model.Config.TopK)); got > limit {
		t.Errorf("got %v allocations a token, want at most %v", got, limit)
	}
}
