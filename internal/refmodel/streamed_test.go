package refmodel

import (
	"context"
	"errors"
	"testing"

	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/router"
	"outrider/runtime"
)

// expertBytes is one expert of tinymoe in Q8_0: 3 x 256 x 64 weights, 34 bytes
// for 32, in memory rounded up to pages.
const expertBytes = 56 << 10

func openStreamed(t testing.TB, path string, o runtime.Options) *runtime.Runtime {
	t.Helper()
	rt, err := runtime.Open(context.Background(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func streamedGenerator(t testing.TB, m *Model, rt *runtime.Runtime, o Options) *Generator {
	t.Helper()
	g, err := New(m, rt, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestStreamedEqualsResident runs the same prompts with all experts in memory
// and through the runtime with little memory: every logit must be the same bits.
func TestStreamedEqualsResident(t *testing.T) {
	model, resident := loadMemory(t, q8Model(t))
	tests := []struct {
		name    string
		options runtime.Options
		chunk   int
	}{
		{"a tenth", runtime.Options{BudgetBytes: 26 * expertBytes, Poison: true}, 0},
		{"near the floor, waves", runtime.Options{BudgetBytes: 6 * expertBytes, Poison: true}, 0},
		{"LRU, chunks", runtime.Options{BudgetBytes: 64 * expertBytes, Keep: runtime.KeepLRU, Poison: true}, 5},
		{"everything fits", runtime.Options{BudgetBytes: 300 * expertBytes, Buffered: true}, 0},
	}
	ctx := context.Background()
	prompts, steps := q8Reference(t)[:2], 16
	if underRace {
		prompts, steps = prompts[:1], 4
	}
	for _, p := range prompts {
		want, err := resident.generator(t, model, Options{}).Transcribe(ctx, p.IDs, steps)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			rt := openStreamed(t, q8Model(t), test.options)
			g := streamedGenerator(t, model, rt, Options{Chunk: test.chunk})
			got, err := g.Transcribe(ctx, p.IDs, steps)
			if err != nil {
				t.Fatalf("%s, %s: %v", p.Name, test.name, err)
			}
			if d := got.Difference(want); d != "" {
				t.Errorf("%s, %s: %s", p.Name, test.name, d)
			}
			if tokens := rt.Stats().Tokens; tokens != int64(len(p.IDs)+steps-1) {
				t.Errorf("%s, %s: the runtime saw %d tokens, want %d", p.Name, test.name, tokens, len(p.IDs)+steps-1)
			}
		}
	}
}

// TestStreamedF32 lets the tensor library work on leased memory.
func TestStreamedF32(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, resident := loadMemory(t, path)
	ctx := context.Background()
	want, err := resident.generator(t, model, Options{}).Transcribe(ctx, someTokens, 20)
	if err != nil {
		t.Fatal(err)
	}
	rt := openStreamed(t, path, runtime.Options{BudgetBytes: 3 * 16384, Poison: true})
	got, err := streamedGenerator(t, model, rt, Options{}).Transcribe(ctx, someTokens, 20)
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Difference(want); d != "" {
		t.Error(d)
	}
}

func TestOnSession(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, _ := loadMemory(t, path)
	rt := openStreamed(t, path, runtime.Options{BudgetBytes: 1 << 20})
	sessions := map[*runtime.Session]bool{}
	g := streamedGenerator(t, model, rt, Options{OnSession: func(s *runtime.Session) error {
		sessions[s] = true
		return nil
	}})
	if _, err := g.Generate(context.Background(), someTokens, 1, Greedy{}, nil); err != nil {
		t.Fatal(err)
	}
	if len(sessions) != 2 {
		t.Errorf("New and Generate: got %d sessions, want 2", len(sessions))
	}
	full := errors.New("disk is full")
	_, err := New(model, rt, Options{OnSession: func(*runtime.Session) error { return full }})
	wantError(t, "OnSession", err, full, "disk is full")
}

// TestLookahead: in decoding every router but the last one's input is told, if asked
// for; where the routers are not at hand, the generator goes on without.
func TestLookahead(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, _ := loadMemory(t, path)
	told := func(rt *runtime.Runtime, o Options) int64 {
		t.Helper()
		g := streamedGenerator(t, model, rt, o)
		before := rt.Stats().Hints
		if err := errors.Join(g.Prefill(t.Context(), someTokens), g.Decode(t.Context(), someTokens...)); err != nil {
			t.Fatal(err)
		}
		after := rt.Stats().Hints
		if after.Refused-before.Refused > 1 {
			t.Errorf("%d look-aheads were refused, want that it gives up after one", after.Refused-before.Refused)
		}
		return after.Told + after.Lost - before.Told - before.Lost
	}
	budget := runtime.Options{BudgetBytes: 1 << 20}
	rt := openStreamed(t, path, budget)
	if got, want := told(rt, Options{Lookahead: true}), len(someTokens)*(model.Config.Blocks-1); got != int64(want) {
		t.Errorf("got %d look-aheads, want %d", got, want)
	}
	if got := told(rt, Options{}); got != 0 {
		t.Errorf("not asked for: got %d look-aheads, want none", got)
	}
	m, err := checkpoint.Open(layout.OS(), path, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	blind, err := runtime.New(struct{ layout.Source }{m.Source}, budget)
	if err != nil {
		t.Fatal(err)
	}
	defer blind.Close()
	if got := told(blind, Options{Lookahead: true}); got != 0 || blind.Stats().Hints.Refused != 1 {
		t.Errorf("no routers: got %d look-aheads and %+v, want one that was refused", got, blind.Stats().Hints)
	}
}

func TestClosedRuntime(t *testing.T) {
	path, _ := synthetic{config: smallConfig()}.write(t)
	model, _ := loadMemory(t, path)
	rt := openStreamed(t, path, runtime.Options{BudgetBytes: 1 << 20})
	g := streamedGenerator(t, model, rt, Options{OnRoute: func(layer int, _ []router.Choice) {
		if layer == 1 {
			rt.Close()
		}
	}})
	wantError(t, "closed", g.Prefill(context.Background(), someTokens), runtime.ErrClosed, "refmodel: block 1")
}

func TestFits(t *testing.T) {
	m := &Model{Config: smallConfig()}
	shape := layout.Shape{Layers: 2, Experts: 5, TopK: 2}
	projection := func(name, typ string, bytes int64, dims ...int64) layout.Projection {
		return layout.Projection{Name: name, Type: typ, Dims: dims, Bytes: bytes}
	}
	tests := []struct {
		name  string
		shape layout.Shape
		p     layout.Projection
		text  string
	}{
		{"shape", layout.Shape{Layers: 2, Experts: 4, TopK: 2}, projection("up", "F16", 960, 24, 20),
			"they have 2 layers of 4 experts, top 2; the model 2 of 5, top 2"},
		{"dense first block", layout.Shape{Layers: 2, Experts: 5, TopK: 2, LayerIDs: []int{1, 2}}, projection("up", "F16", 960, 24, 20), "one in every block"},
		{"side tensor", shape, projection("up.bias", "F32", 80, 20), `layer 0: projection "up.bias": expert weights do not fit the model: qwen3moe experts have gate, up and down only`},
		{"dims", shape, projection("down", "F16", 960, 24, 20), "dimensions [24 20], want [20 24]"},
		{"type", shape, projection("up", "IQ1_S", 960, 24, 20), `"IQ1_S"`},
		{"block", shape, projection("up", "Q8_0", 0, 24, 20), "0 bytes of Q8_0"},
		{"bytes", shape, projection("up", "F16", 961, 24, 20), "961 bytes of F16, want 960"},
	}
	for _, test := range tests {
		err := fits(m, test.shape, func(int) []layout.Projection { return []layout.Projection{test.p} })
		wantError(t, test.name, err, ErrExperts, test.text)
	}
	for _, p := range []layout.Projection{projection("up", "F16", 960, 24, 20), projection("gate_up", "F32", 3840, 24, 40)} {
		if err := fits(m, shape, func(int) []layout.Projection { return []layout.Projection{p} }); err != nil {
			t.Errorf("%s: got %v", p.Name, err)
		}
	}
}

// BenchmarkStreamed decodes through the runtime, with all experts in memory
// and with a quarter of them.
func BenchmarkStreamed(b *testing.B) {
	for _, f := range []struct {
		name   string
		budget int64
	}{{"all", 300 * expertBytes}, {"quarter", 64 * expertBytes}} {
		b.Run(f.name, func(b *testing.B) {
			model, err := Load(nil, q8Model(b))
			if err != nil {
				b.Fatal(err)
			}
			rt := openStreamed(b, q8Model(b), runtime.Options{BudgetBytes: f.budget})
			decode(b, streamedGenerator(b, model, rt, Options{}))
			b.ReportMetric(100*rt.Stats().HitRate(), "hit%")
		})
	}
}
