package synth

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

var small = layout.Shape{Layers: 4, Experts: 16, TopK: 2}

func newStreamOf(tb testing.TB, kind Kind, o Options) trace.Stream {
	tb.Helper()
	s, err := New(kind, o)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// made is a whole trace; trace.ReadAll checks every token.
func made(tb testing.TB, kind Kind, o Options) *trace.Trace {
	tb.Helper()
	tr, err := trace.ReadAll(newStreamOf(tb, kind, o), 0)
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// hash is that of all that a trace's tokens hold.
func hash(t *testing.T, s trace.Stream) string {
	t.Helper()
	sum := sha256.New()
	var a trace.Activation
	var err error
	for {
		if err = s.Next(&a); err != nil {
			break
		}
		for _, part := range []any{a.Seq, a.Pos, a.Phase, a.Token, a.Experts, a.Weights} {
			if err := binary.Write(sum, binary.LittleEndian, part); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(err, io.EOF) || !errors.Is(s.Next(&a), io.EOF) {
		t.Fatalf("end: got %v, want io.EOF, and again", err)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// A change of these hashes needs a new version.
func TestGolden(t *testing.T) {
	o := Options{Shape: layout.Shape{Layers: 5, Experts: 24, TopK: 3, LayerIDs: []int{1, 2, 3, 5, 8}}, Tokens: 500, Sequences: 3, Prompt: 20, Seed: 42, Dwell: 30}
	for kind, want := range map[Kind]string{
		Uniform: "ea06e6328c5f2d31",
		Zipf:    "0cc8972db5dd5df8",
		Markov:  "118df7fd83c2b08f",
		Domains: "af0a6e320d8c8c7e",
	} {
		got := hash(t, newStreamOf(t, kind, o))
		if got != want {
			t.Errorf("%s: got %q, want %q", kind, got, want)
		}
		if again := hash(t, newStreamOf(t, kind, o)); again != got {
			t.Errorf("%s: a second time: got %s, want %s", kind, again, got)
		}
		other := o
		other.Seed++
		if got == hash(t, newStreamOf(t, kind, other)) {
			t.Errorf("%s: another seed gives the same trace", kind)
		}
	}
}

func TestShapeOfTraces(t *testing.T) {
	for _, kind := range Kinds() {
		tr := made(t, kind, Options{Shape: small, Tokens: 100, Sequences: 3, Prompt: 10, Vocabulary: 50})
		lengths := map[int64]int64{}
		for i := range tr.Len() {
			seq := tr.Seqs[i]
			if tr.Pos[i] != lengths[seq] || (i > 0 && seq < tr.Seqs[i-1]) {
				t.Fatalf("%s, token %d: got sequence %d, position %d, want position %d and sequences in order", kind, i, seq, tr.Pos[i], lengths[seq])
			}
			lengths[seq]++
			if prefill := tr.Phases[i] == trace.Prefill; prefill != (tr.Pos[i] < 10) {
				t.Fatalf("%s, position %d: got phase %v", kind, tr.Pos[i], tr.Phases[i])
			}
			if tr.Tokens[i] < 0 || tr.Tokens[i] >= 50 {
				t.Fatalf("%s: got token id %d, want 0 to 49", kind, tr.Tokens[i])
			}
			for l := range small.Layers {
				_, w := tr.Row(i, l)
				sum := float32(0)
				for _, g := range w {
					sum += g
				}
				if !slices.IsSortedFunc(w, func(a, b float32) int { return int(math.Copysign(1, float64(b-a))) }) || w[len(w)-1] <= 0 || math.Abs(float64(sum-1)) > 1e-6 {
					t.Fatalf("%s: got gate weights %v, want a sum of 1, best first", kind, w)
				}
			}
		}
		if want := map[int64]int64{0: 34, 1: 33, 2: 33}; lengths[0] != want[0] || lengths[1] != want[1] || lengths[2] != want[2] {
			t.Errorf("%s: got lengths %v, want %v", kind, lengths, want)
		}
		h := tr.Header
		if h.Phase != trace.PhaseUnknown || h.IDs != trace.IDsLogical || h.Ranked != trace.Yes || h.Sequences != trace.Yes || !h.Weights || !h.Tokens {
			t.Errorf("%s: got header %+v", kind, h)
		}
		if h.Model != "synthetic "+string(kind) || !strings.Contains(h.Source, "seed 0, tokens 100, sequences 3, prompt 10, vocabulary 50") {
			t.Errorf("%s: got model %q, source %q", kind, h.Model, h.Source)
		}
	}
	if h := made(t, Zipf, Options{Shape: small, Tokens: 1}).Header; h.Phase != trace.Decode {
		t.Errorf("no prompt: got phase %v, want decode", h.Phase)
	}
}

// Every row that is possible must occur, and rows of all experts must work.
func TestExtremeShapes(t *testing.T) {
	for _, shape := range []layout.Shape{
		{Layers: 1, Experts: 1, TopK: 1}, {Layers: 3, Experts: 7, TopK: 7}, {Layers: 2, Experts: 300, TopK: 290}, {Layers: 1, Experts: 4096, TopK: 8},
	} {
		for _, kind := range Kinds() {
			for _, skew := range []float64{-1, 0, MaxSkew} {
				tr := made(t, kind, Options{Shape: shape, Tokens: 40, Seed: 3, Skew: skew, Vocabulary: 1, Dwell: 2, Domains: 3, LayerPull: 0.9, PastPull: 0.1})
				if tr.Len() != 40 {
					t.Errorf("%s %+v: got %d tokens, want 40", kind, shape, tr.Len())
				}
			}
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	good := Options{Shape: small, Tokens: 10}
	for _, test := range []struct {
		kind Kind
		with func(*Options)
		want string
	}{
		{"normal", func(*Options) {}, `no kind "normal", want one of ["uniform" "zipf" "markov" "domains"]`},
		{Zipf, func(o *Options) { o.Shape.TopK = 17 }, "top-k 17, want 1 to 16"},
		{Zipf, func(o *Options) { o.Tokens = 0 }, "Tokens is 0, want 1 or more"},
		{Zipf, func(o *Options) { o.Sequences = 11 }, "Sequences is 11, want 1 to 10"},
		{Zipf, func(o *Options) { o.Sequences = -1 }, "Sequences is -1"},
		{Zipf, func(o *Options) { o.Sequences, o.Prompt = 3, 4 }, "Prompt is 4, want 0 to 3"},
		{Zipf, func(o *Options) { o.Prompt = -1 }, "Prompt is -1"},
		{Zipf, func(o *Options) { o.Skew = 8.5 }, "Skew is 8.5, want at most 8"},
		{Zipf, func(o *Options) { o.Skew = math.NaN() }, "Skew is NaN"},
		{Markov, func(o *Options) { o.LayerPull = 1.5 }, "LayerPull is 1.5, want at most 1"},
		{Markov, func(o *Options) { o.PastPull = math.NaN() }, "PastPull is NaN"},
		{Markov, func(o *Options) { o.LayerPull, o.PastPull = 0.75, 0.5 }, "make 1.25 together, want at most 1"},
		{Domains, func(o *Options) { o.Domains = 1 }, "Domains is 1, want 2 or more"},
		{Domains, func(o *Options) { o.Domains = 1 << 30 }, "Domains is 1073741824, want at most 131072 for 64 experts"},
		{Domains, func(o *Options) { o.Dwell = -1 }, "Dwell is -1, want 1 or more"},
		{Uniform, func(o *Options) { o.Vocabulary = 1 << 21 }, "Vocabulary is 2097152, want 1 to 1048576"},
	} {
		o := good
		test.with(&o)
		if _, err := New(test.kind, o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	for _, kind := range Kinds() {
		s := newStreamOf(t, kind, Options{Shape: small, Tokens: math.MaxInt, Dwell: 2, Domains: 2})
		var a trace.Activation
		for range 50 { // every domain's order is made
			if err := s.Next(&a); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(500, func() { _ = s.Next(&a) }); n > 0 {
			t.Errorf("%s: got %v allocations a token, want 0", kind, n)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	for _, shape := range []layout.Shape{{Layers: 24, Experts: 32, TopK: 4}, {Layers: 48, Experts: 512, TopK: 10}} {
		for _, kind := range Kinds() {
			b.Run(fmt.Sprintf("%s/%dx%d", kind, shape.Layers, shape.Experts), func(b *testing.B) {
				s := newStreamOf(b, kind, Options{Shape: shape, Tokens: math.MaxInt})
				var a trace.Activation
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Next(&a); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
