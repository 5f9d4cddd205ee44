package trace

import (
	"errors"
	"math"
	"strings"
	"testing"

	"outrider/layout"
)

func collect(t *testing.T, tr *Trace) *Stats {
	t.Helper()
	s, err := Collect(tr.Stream(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCollectSmall(t *testing.T) {
	tr, err := NewTrace(Header{Shape: layout.Shape{Layers: 2, Experts: 4, TopK: 2}})
	if err != nil {
		t.Fatal(err)
	}
	// Two sequences, interleaved; each reuses one expert of layer 0.
	for _, a := range []Activation{
		{Seq: 7, Pos: 0, Phase: Prefill, Token: -1, Experts: []int32{0, 1, 0, 1}},
		{Seq: 8, Pos: 0, Phase: Decode, Token: -1, Experts: []int32{2, 3, 0, 1}},
		{Seq: 7, Pos: 1, Phase: Decode, Token: -1, Experts: []int32{1, 2, -1, -1}},
		{Seq: 8, Pos: 1, Phase: PhaseUnknown, Token: -1, Experts: []int32{3, 0, 2, -1}},
	} {
		if err := tr.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	s := collect(t, tr)
	if s.Tokens != 4 || s.Sequences != 2 || s.Prefill != 1 || s.Decode != 2 || s.Unknown != 1 {
		t.Errorf("got %d tokens, %d sequences, phases %d, %d, %d; want 4, 2, 1, 2, 1", s.Tokens, s.Sequences, s.Prefill, s.Decode, s.Unknown)
	}
	if s.Cycle != 13.0/4 || s.MaxCycle != 4 {
		t.Errorf("cycle: got %v, most %d; want 3.25, 4", s.Cycle, s.MaxCycle)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	near("layer 0 entropy", s.Layers[0].Entropy, 2)
	near("layer 0 max/mean", s.Layers[0].MaxMean, 1)
	near("layer 0 reuse", s.Layers[0].Reuse, 0.5)
	near("layer 0 chance", s.Layers[0].ReuseChance, 0.5)
	near("layer 1 max/mean", s.Layers[1].MaxMean, 2*4/5.0)
	near("layer 1 reuse", s.Layers[1].Reuse, 0)
	if s.Informed || s.Uniform || s.Hint() != "" {
		t.Errorf("4 tokens: got informed %v, uniform %v, hint %q; want neither", s.Informed, s.Uniform, s.Hint())
	}
}

// cyclic routes token t to experts that follow those of token t-1, with an even
// load and no reuse: chance by every figure but the token's information.
func cyclic(t *testing.T, layers bool) *Trace {
	t.Helper()
	shape := layout.Shape{Layers: 2, Experts: 16, TopK: 2}
	tr := skewed(t, shape, 3000, true)
	for i := range tr.Len() {
		row := tr.Experts[i*4 : i*4+4]
		switch {
		case layers:
			row[2], row[3] = (row[0]+1)%16, (row[1]+1)%16
		case i >= 3:
			before := tr.Experts[(i-3)*4 : (i-3)*4+4] // three sequences interleave
			for k := range row {
				row[k] = (before[k] + 3) % 16
			}
		}
	}
	return tr
}

func TestUniformHint(t *testing.T) {
	tests := []struct {
		name    string
		tr      *Trace
		uniform bool
	}{
		{"uniform", skewed(t, layout.Shape{Layers: 3, Experts: 32, TopK: 4}, 4000, true), true},
		{"uniform, top-k most of them", skewed(t, layout.Shape{Layers: 2, Experts: 8, TopK: 6}, 4000, true), true},
		{"skewed load", skewed(t, layout.Shape{Layers: 3, Experts: 32, TopK: 4}, 4000, false), false},
		{"the token before tells", cyclic(t, false), false},
		{"the layer before tells", cyclic(t, true), false},
		{"every token uses all", skewed(t, layout.Shape{Layers: 2, Experts: 4, TopK: 4}, 1000, true), false},
		{"too short to say", skewed(t, layout.Shape{Layers: 3, Experts: 32, TopK: 4}, 50, true), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := collect(t, test.tr)
			if s.Uniform != test.uniform || (s.Hint() != "") != test.uniform {
				t.Errorf("got uniform %v with hint %q, want %v; layer 1: %+v", s.Uniform, s.Hint(), test.uniform, s.Layers[1])
			}
		})
	}
}

func TestInformation(t *testing.T) {
	// A permutation from layer to layer tells all 4 bits of one expert; with two
	// of them a pair tells which pair it belongs to only half the time.
	layer := collect(t, cyclic(t, true)).Layers[1]
	if layer.LayerInfo < 1 || layer.LayerInfo > 4 {
		t.Errorf("layer information of a permutation: got %v bits, want 1 to 4", layer.LayerInfo)
	}
	if layer.TokenInfo > 0.04 {
		t.Errorf("token information of random tokens: got %v bits, want about 0", layer.TokenInfo)
	}
	if got := collect(t, cyclic(t, false)).Layers[1].TokenInfo; got < 1 {
		t.Errorf("token information of a cycle: got %v bits, want 1 or more", got)
	}
}

func TestCollectLimitAndErrors(t *testing.T) {
	tr := skewed(t, layout.Shape{Layers: 2, Experts: 8, TopK: 2}, 100, false)
	s, err := Collect(tr.Stream(), 30)
	if err != nil || s.Tokens != 30 {
		t.Errorf("limit 30: got %d tokens, %v", s.Tokens, err)
	}
	b := binaryOf(t, tr)
	r, err := NewStream(strings.NewReader(string(b[:len(b)-20])))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = Collect(r, 0); !errors.Is(err, ErrTorn) || s == nil || s.Tokens != 100 {
		t.Errorf("torn: got %+v, %v, want 100 tokens and ErrTorn", s, err)
	}
	empty, err := NewTrace(tr.Header)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = Collect(empty.Stream(), 0); err != nil || s.Tokens != 0 || s.Uniform {
		t.Errorf("empty: got %+v, %v", s, err)
	}
	// A model too large to count pairs still gets the other figures.
	big := skewed(t, layout.Shape{Layers: 1, Experts: 5000, TopK: 2}, 10, true)
	if s, err = Collect(big.Stream(), 0); err != nil || s.Informed || s.Cycle != 2 {
		t.Errorf("big: got informed %v, cycle %v, %v; want false, 2", s.Informed, s.Cycle, err)
	}
}
