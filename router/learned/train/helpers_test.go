package train

import (
	"bytes"
	"testing"

	"outrider/layout"
	"outrider/router/learned"
	"outrider/trace"
	"outrider/trace/synth"
)

var small = layout.Shape{Layers: 3, Experts: 16, TopK: 3}

// generated is a trace in which layers and tokens follow each other.
func generated(tb testing.TB, tokens, sequences int, seed uint64) *trace.Trace {
	tb.Helper()
	s, err := synth.New(synth.Markov, synth.Options{Shape: small, Tokens: tokens, Sequences: sequences, Seed: seed, Vocabulary: 50})
	if err != nil {
		tb.Fatal(err)
	}
	t, err := trace.ReadAll(s, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func trained(tb testing.TB, o Options, traces ...*trace.Trace) (*learned.Model, Report) {
	tb.Helper()
	m, r, err := Train(tb.Context(), traces, o)
	if err != nil {
		tb.Fatal(err)
	}
	return m, r
}

func bytesOf(tb testing.TB, m *learned.Model) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := m.Save(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}
