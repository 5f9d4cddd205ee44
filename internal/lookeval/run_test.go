package lookeval

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// made is a trace whose router of each layer chooses by the hidden state's
// largest numbers: the matrices are ones on the diagonal, the states all the same
// from layer to layer. It returns the files too.
func made(t *testing.T, tokens int) (tr *trace.Trace, hidden, gates string) {
	t.Helper()
	shape := layout.Shape{Layers: 3, Experts: 8, TopK: 2}
	tr, err := trace.NewTrace(trace.Header{Model: "made", Shape: shape, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	var states, matrices []byte
	for i := range tokens {
		a := trace.Activation{Pos: int64(i), Token: int32(i % 5)}
		first := int32(i*i*7+i) % 8
		second := (first + 1 + int32(i)%7) % 8
		for range shape.Layers {
			a.Experts = append(a.Experts, first, second)
			for e := range int32(8) {
				half := uint16(0x2e66) // 0.1
				switch e {
				case first:
					half = 0x4000 // 2
				case second:
					half = 0x3c00 // 1
				}
				states = binary.LittleEndian.AppendUint16(states, half)
			}
		}
		if err := tr.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	for range shape.Layers {
		for e := range 8 {
			for i := range 8 {
				x := float32(0)
				if i == e {
					x = 1
				}
				matrices = binary.LittleEndian.AppendUint32(matrices, math.Float32bits(x))
			}
		}
	}
	dir := t.TempDir()
	hidden, gates = filepath.Join(dir, "hidden.bin"), filepath.Join(dir, "gates.bin")
	for path, data := range map[string][]byte{hidden: states, gates: matrices} {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tr, hidden, gates
}

// Where each state tells the next layer's choice exactly, the guess is always
// right, and the joined forecast soon.
func TestRunOfExactStates(t *testing.T) {
	tr, hidden, gates := made(t, 200)
	in, err := Open(tr, hidden, gates)
	if err != nil {
		t.Fatal(err)
	}
	report, err := Run(t.Context(), in, online(tr), Options{Ahead: 9})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 5*2 || report.Tokens != 200 {
		t.Fatalf("got %d rows and %d tokens, want 10 (two distances are all there are) and 200", len(report.Rows), report.Tokens)
	}
	for _, r := range report.Rows {
		look := strings.Contains(r.Source, "lookahead")
		if r.Source == "lookahead" && r.RecallAtK != 1 {
			t.Errorf("the guess, %d ahead: recall %.3f, want 1", r.Ahead, r.RecallAtK)
		}
		if look && r.RecallAtK < 0.99 {
			t.Errorf("%s, %d ahead: recall %.3f, want almost 1", r.Source, r.Ahead, r.RecallAtK)
		}
		if (r.LogLoss == nil) != (r.Source == "lookahead") || r.RecallAt2K < r.RecallAt15K || r.RecallAt15K < r.RecallAtK {
			t.Errorf("row %+v", r)
		}
	}
}

func TestOpenAndRunRefuse(t *testing.T) {
	tr, hidden, gates := made(t, 20)
	if err := os.WriteFile(filepath.Join(filepath.Dir(gates), "short.bin"), make([]byte, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(filepath.Dir(gates), "short.bin")
	half, _, _ := made(t, 10)
	other, _, _ := made(t, 20)
	for i := range other.Experts {
		other.Experts[i] = (other.Experts[i] + 3) % 8
	}
	empty := &trace.Trace{Header: tr.Header}
	for _, c := range []struct {
		trace         *trace.Trace
		hidden, gates string
		sentinel      error
		text          string
	}{
		{tr, hidden + "x", gates, fs.ErrNotExist, "hidden states: stat "},
		{tr, hidden, gates + "x", fs.ErrNotExist, "router matrices: stat "},
		{tr, t.TempDir(), gates, ErrInput, "is no file of numbers"},
		{tr, hidden, t.TempDir(), ErrInput, "is no file of numbers"},
		{tr, short, gates, ErrInput, "has 100 bytes, which are not the float16 states of 20 tokens x 3 layers"},
		{empty, hidden, gates, ErrInput, "of 0 tokens"},
		{tr, hidden, short, ErrInput, "short.bin has 100 bytes, 3 layers of 8 x 8 float32 need 768"},
		{half, hidden, gates, ErrInput, "3 layers of 8 x 16 float32 need 1536"}, // one state of two tokens
		{other, hidden, gates, ErrInput, "% of the experts that the trace says, want at least 90 %"},
	} {
		if _, err := Open(c.trace, c.hidden, c.gates); !errors.Is(err, c.sentinel) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("got %v, want an error that says %q", err, c.text)
		}
	}
	in, err := Open(tr, hidden, gates)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, in, online(tr), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	for _, warm := range []int{-1, 20} {
		if _, err := Run(t.Context(), in, online(tr), Options{Warm: warm}); !errors.Is(err, ErrInput) {
			t.Errorf("%d tokens to warm up: got %v, want ErrInput", warm, err)
		}
	}
}

// TestWarmAndCount: what was learned before counting helps, and progress ends at
// what Replays promises.
func TestWarmAndCount(t *testing.T) {
	tr, hidden, gates := made(t, 400)
	in, err := Open(tr, hidden, gates)
	if err != nil {
		t.Fatal(err)
	}
	run := func(o Options) *Report {
		t.Helper()
		last := -1
		o.Progress = func(tokens int) {
			if tokens < last {
				t.Errorf("progress: got %d after %d", tokens, last)
			}
			last = tokens
		}
		report, err := Run(t.Context(), in, online(tr), o)
		if err != nil {
			t.Fatal(err)
		}
		if most := Replays(in.Trace.Header.Tokens) * (o.Warm + report.Tokens); last >= most || last < most-64 {
			t.Errorf("progress ended at %d, want just before %d", last, most)
		}
		return report
	}
	cold, warm := run(Options{MaxTokens: 100}), run(Options{Warm: 200, MaxTokens: 100})
	if cold.Tokens != 100 || warm.Tokens != 100 {
		t.Fatalf("got %d and %d tokens, want 100", cold.Tokens, warm.Tokens)
	}
	for i, c := range cold.Rows {
		if w := warm.Rows[i]; c.LogLoss != nil && *w.LogLoss >= *c.LogLoss {
			t.Errorf("%s, %d ahead: log loss %.4f after a warm-up, want less than %.4f", c.Source, c.Ahead, *w.LogLoss, *c.LogLoss)
		}
	}
	blind := *tr
	blind.Header.Tokens = false
	in.Trace = &blind
	report := run(Options{MaxTokens: 50})
	if len(report.Rows) != 3*2 || report.Rows[2].Source != "online" {
		t.Errorf("a trace without ids: got %d rows, the third of %q, want 6, with and without look-ahead", len(report.Rows), report.Rows[2].Source)
	}
}

func TestHalf(t *testing.T) {
	for h, want := range map[uint16]float64{0: 0, 0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24), 0x7bff: 65504, 0x7c00: math.Inf(1), 0xfc00: math.Inf(-1)} {
		if got := float64(half(h)); got != want {
			t.Errorf("%#04x: got %v, want %v", h, got, want)
		}
	}
	if got := half(0x7e00); got == got {
		t.Errorf("0x7e00: got %v, want NaN", got)
	}
}
