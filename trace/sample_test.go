package trace

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"outrider/layout"
)

// drawTrace makes any trace that the rules allow.
func drawTrace(t *rapid.T) *Trace {
	experts := rapid.SampledFrom([]int{1, 2, 7, 8, 255, 256, 257, 700}).Draw(t, "experts")
	h := Header{
		Model:   rapid.String().Draw(t, "model"),
		Shape:   layout.Shape{Layers: rapid.IntRange(1, 4).Draw(t, "layers"), Experts: experts, TopK: rapid.IntRange(1, min(experts, 5)).Draw(t, "topK")},
		Phase:   Phase(rapid.IntRange(0, 2).Draw(t, "phase")),
		Weights: rapid.Bool().Draw(t, "weights"),
		Tokens:  rapid.Bool().Draw(t, "tokens"),
		Source:  rapid.String().Draw(t, "source"),
		Note:    "<&>\u2028",
	}
	if rapid.Bool().Draw(t, "layerIDs") {
		for l := range h.Shape.Layers {
			h.Shape.LayerIDs = append(h.Shape.LayerIDs, 3+2*l)
		}
	}
	tr, err := NewTrace(h)
	if err != nil {
		t.Fatalf("NewTrace(%+v): %v", h, err)
	}
	for range rapid.IntRange(1, 20).Draw(t, "count") {
		a := drawActivation(t, &h)
		if err := tr.Append(&a); err != nil {
			t.Fatalf("Append(%+v): %v", a, err)
		}
	}
	return tr
}

func drawActivation(t *rapid.T, h *Header) Activation {
	a := Activation{
		Seq:   rapid.Int64Min(0).Draw(t, "seq"),
		Pos:   rapid.Int64Min(0).Draw(t, "pos"),
		Phase: h.Phase,
		Token: -1,
	}
	if h.Phase == PhaseUnknown {
		a.Phase = Phase(rapid.IntRange(0, 2).Draw(t, "phase"))
	}
	if h.Tokens {
		a.Token = rapid.Int32Min(-1).Draw(t, "token")
	}
	k := h.Shape.TopK
	for range h.Shape.Layers {
		n := k - max(0, rapid.IntRange(-3, k).Draw(t, "fill"))
		ids := rapid.SliceOfNDistinct(rapid.Int32Range(0, int32(h.Shape.Experts-1)), n, n, rapid.ID).Draw(t, "ids")
		for i := range k {
			id, w := int32(-1), float32(0)
			if i < n {
				id, w = ids[i], rapid.Float32().Draw(t, "w")
			}
			a.Experts = append(a.Experts, id)
			if h.Weights {
				a.Weights = append(a.Weights, w)
			}
		}
	}
	return a
}

// skewed makes a trace of three interleaved sequences with skewed load, or a
// uniform one, from a seed.
func skewed(tb testing.TB, shape layout.Shape, tokens int, uniform bool) *Trace {
	tb.Helper()
	tr, err := NewTrace(Header{Model: "made up", Shape: shape, Phase: Decode, Weights: true, Tokens: true})
	if err != nil {
		tb.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	a := Activation{Phase: Decode}
	for i := range tokens {
		a.Seq, a.Pos, a.Token = int64(i%3), int64(i/3), int32(i%500)
		a.Experts, a.Weights = a.Experts[:0], a.Weights[:0]
		for range shape.Layers {
			row := rng.Perm(shape.Experts)[:shape.TopK]
			if !uniform {
				row[0] = 0 // expert 0 is always used
				for k := 1; k < len(row); k++ {
					for slices.Contains(row[:k], row[k]) {
						row[k] = 1 + rng.IntN(shape.Experts-1)
					}
				}
			}
			for _, id := range row {
				a.Experts = append(a.Experts, int32(id))
				a.Weights = append(a.Weights, rng.Float32())
			}
		}
		if err := tr.Append(&a); err != nil {
			tb.Fatal(err)
		}
	}
	return tr
}

// pour writes all of a trace into a sink and closes it.
func pour(tb interface {
	Helper()
	Fatalf(string, ...any)
}, tr *Trace, s Sink) {
	tb.Helper()
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		if err := s.Append(&a); err != nil {
			tb.Fatalf("Append token %d: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		tb.Fatalf("Close: %v", err)
	}
}

// binaryOf and jsonlOf are a trace's bytes in either form.
func binaryOf(tb testing.TB, tr *Trace) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, tr.Header)
	if err != nil {
		tb.Fatal(err)
	}
	pour(tb, tr, w)
	return b.Bytes()
}

func jsonlOf(tb testing.TB, tr *Trace) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := NewJSONLWriter(&b, tr.Header)
	if err != nil {
		tb.Fatal(err)
	}
	pour(tb, tr, w)
	return b.Bytes()
}

// diff compares what two traces hold.
func diff(want, got *Trace) string {
	return cmp.Diff(content(want), content(got), cmpopts.IgnoreUnexported(Trace{}))
}

func content(t *Trace) Trace {
	return Trace{Header: t.Header, Seqs: t.Seqs, Pos: t.Pos, Phases: t.Phases, Tokens: t.Tokens, Experts: t.Experts, Weights: t.Weights}
}

// small is a fixed trace with all that the forms can carry.
func small(tb testing.TB) *Trace {
	tb.Helper()
	tr, err := NewTrace(Header{
		Model: "golden", Source: "made up", Note: "2 layers of 300",
		Shape:   layout.Shape{Layers: 2, Experts: 300, TopK: 2, LayerIDs: []int{1, 3}},
		Weights: true, Tokens: true,
	})
	if err != nil {
		tb.Fatal(err)
	}
	for _, a := range []Activation{
		{Seq: 5, Pos: 0, Phase: Prefill, Token: 71, Experts: []int32{3, 299, 0, 1}, Weights: []float32{0.75, 0.25, 0.5, 0.5}},
		{Seq: 5, Pos: 1, Phase: Decode, Token: -1, Experts: []int32{3, -1, -1, -1}, Weights: []float32{1, 0, 0, 0}},
		{Seq: 2, Pos: 900, Phase: PhaseUnknown, Token: 0, Experts: []int32{299, 3, 7, 0}, Weights: []float32{0.1, -2e-9, 0, 3e20}},
	} {
		if err := tr.Append(&a); err != nil {
			tb.Fatal(err)
		}
	}
	return tr
}

// drain reads a stream to its end or first error, which must stay.
func drain(tb testing.TB, s Stream) (tokens int, err error) {
	tb.Helper()
	var a Activation
	for {
		if err = s.Next(&a); err != nil {
			break
		}
		tokens++
	}
	if again := s.Next(&a); again != err {
		tb.Errorf("Next after an error: got %v, want %v again", again, err)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return tokens, err
}
