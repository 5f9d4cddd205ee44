package widen

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"outrider/internal/refmodel"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/router"
	"outrider/runtime"
)

// spoken is what a model said to some prompts, and on the way.
type spoken struct {
	tokens [][]int32
	routes [][]int32   // of every pass and layer, the choices one after another
	logits [][]float32 // of every step
}

// TestSameModel is the top test: the enlarged model generates the same tokens and
// makes the same choices, in the same order, in every layer of every pass. The
// logits differ by the order of floating-point sums only.
func TestSameModel(t *testing.T) {
	root := filepath.Join(testfiles.Root(t), "testdata", "tinymoe")
	for _, c := range []struct {
		name, path string
		factors    []Options
	}{
		{"q8_0", filepath.Join(root, "tinymoe-q8_0.gguf"), []Options{{2, 2}, {4, 1}}},
		{"f16", "tinymoe-f16.gguf", []Options{{2, 2}}},
		{"q4_k_m", "tinymoe-q4_k_m-00002-of-00003.gguf", []Options{{2, 2}}},
		{"mxfp4_moe", "tinymoe-mxfp4_moe.gguf", []Options{{2, 2}}},
		{"q4_0, one layer", "tinymoe-1layer-q4_0.gguf", []Options{{4, 8}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !filepath.IsAbs(c.path) {
				if underRace {
					t.Skip("nothing runs at once here")
				}
				c.path = testfiles.Shared(t, "tinymoe/"+c.path)
			}
			want := speak(t, c.path)
			for _, o := range c.factors {
				path := filepath.Join(t.TempDir(), "wide.gguf")
				report := writeFile(t, c.path, path, o)
				got := speak(t, path)
				compareSpoken(t, o, got, want)
				t.Logf("%d x %d: %d bytes, %d uneven; %d tokens and %d router rows equal, logits within %.3g of up to %.3g",
					o.Width, o.FFN, report.Bytes, report.Uneven, len(want.logits), len(want.routes), got.distance(want), want.largest())
			}
		})
	}
}

func writeFile(t *testing.T, from, to string, o Options) Report {
	t.Helper()
	plan, err := New(nil, from, o)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	report, err := plan.Write(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return report
}

// compareSpoken allows sums in another order: 1e-4 of logits up to 34.
func compareSpoken(t *testing.T, o Options, got, want spoken) {
	t.Helper()
	for i := range want.tokens {
		if !slices.Equal(got.tokens[i], want.tokens[i]) {
			t.Errorf("%+v: prompt %d: got tokens %v, want %v", o, i, got.tokens[i], want.tokens[i])
		}
	}
	for i := range want.routes {
		if !slices.Equal(got.routes[i], want.routes[i]) {
			t.Errorf("%+v: router row %d: got %v, want %v", o, i, got.routes[i], want.routes[i])
			break
		}
	}
	if d := got.distance(want); d > 1e-4 {
		t.Errorf("%+v: logits are up to %v apart, want 1e-4 at most", o, d)
	}
}

func (s spoken) distance(other spoken) float64 {
	if len(s.logits) != len(other.logits) {
		return math.Inf(1)
	}
	most := 0.0
	for i := range s.logits {
		for j, v := range s.logits[i] {
			most = max(most, math.Abs(float64(v)-float64(other.logits[i][j])))
		}
	}
	return most
}

func (s spoken) largest() float64 {
	most := 0.0
	for _, row := range s.logits {
		for _, v := range row {
			most = max(most, math.Abs(float64(v)))
		}
	}
	return most
}

// speak lets a model continue the reference's prompts, experts read in place.
func speak(t *testing.T, path string) spoken {
	t.Helper()
	model, err := refmodel.Load(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.Open(t.Context(), path, runtime.Options{BudgetBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, rt.Close)
	var s spoken
	g, err := refmodel.New(model, rt, refmodel.Options{OnRoute: func(_ int, choices []router.Choice) {
		var row []int32
		for _, c := range choices {
			row = append(row, c.Experts...)
		}
		s.routes = append(s.routes, row)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, g.Close)
	prompts, steps := prompts(t), 16
	if underRace || testing.Short() {
		prompts, steps = prompts[:1], 4
	}
	for _, p := range prompts {
		got, err := g.Transcribe(t.Context(), p, steps)
		if err != nil {
			t.Fatal(err)
		}
		s.tokens = append(s.tokens, got.Tokens)
		s.logits = append(s.logits, got.Logits...)
	}
	return s
}

func closed(t *testing.T, close func() error) {
	if err := close(); err != nil {
		t.Error(err)
	}
}

func prompts(t *testing.T) (ids [][]int32) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testfiles.Root(t), "testdata", "tinymoe", "reference-q8_0.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Prompts []struct {
			IDs []int32 `json:"ids"`
		} `json:"prompts"`
	}
	if err := json.Unmarshal(data, &r); err != nil || len(r.Prompts) == 0 {
		t.Fatalf("reference: %d prompts, %v", len(r.Prompts), err)
	}
	for _, p := range r.Prompts {
		ids = append(ids, p.IDs)
	}
	return ids
}

// TestStoreOfWidened: what was enlarged is laid out like any checkpoint.
func TestStoreOfWidened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wide.gguf")
	writeFile(t, filepath.Join(testfiles.Root(t), "testdata", "tinymoe", "tinymoe-q8_0.gguf"), path, Options{2, 1})
	cp, err := checkpoint.Read(layout.OS(), path)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "wide.outrider")
	report, err := layout.Build(t.Context(), layout.BuildOptions{FS: layout.OS(), Dir: dir, Plan: plan, Checkpoint: &cp})
	if err != nil || report.Records != 256 || plan.DataBytes < 256*2*52224 {
		t.Fatalf("got %+v of %d bytes, %v, want 256 records of twice 52224 bytes", report, plan.DataBytes, err)
	}
	if len(cp.Routers.Layers) != 8 || cp.Routers.Width != 512 {
		t.Errorf("got routers %+v, want 8 of width 512", cp.Routers)
	}
}
