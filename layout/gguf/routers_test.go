package gguf_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/layout/gguf"
)

// routed is a model of two layers of four experts; blocks says where they are.
func routed(blocks ...int) *gguf.Writer {
	w := checkpoint(4, blocks[len(blocks)-1]+1)
	for _, b := range blocks {
		stackedLayer(w, b)
	}
	return w
}

func gate(block int) string { return fmt.Sprintf("blk.%d.ffn_gate_inp.weight", block) }

func TestRouters(t *testing.T) {
	w := routed(1, 2)
	add(w, gate(1), gguf.F32, 32, 4)
	add(w, gate(2), gguf.BF16, 32, 4)
	add(w, "blk.2.ffn_gate_inp.bias", gguf.F32, 4)
	add(w, "blk.1.exp_probs_b.bias", gguf.F32, 4)
	add(w, "blk.2.exp_probs_b", gguf.F16, 4)
	w.Set("test.expert_gating_func", uint32(4))
	w.Set("test.expert_group_count", uint32(2))
	w.Set("test.expert_group_used_count", uint32(1))
	w.Set("test.expert_weights_norm", true)
	w.Set("test.expert_weights_scale", float32(2.5))
	cp, err := find(w, t)
	if err != nil {
		t.Fatal(err)
	}
	if err := cp.Validate(); err != nil {
		t.Fatal(err)
	}
	r := cp.Routers
	if r == nil {
		t.Fatalf("got none: %s", cp.NoRouters)
	}
	want := layout.RouterRule{Scoring: layout.ScoreSqrtSoftplus, Groups: 2, GroupsUsed: 1, Normalised: true, Scale: 2.5}
	if r.RouterRule != want || r.Width != 32 {
		t.Errorf("got %+v and width %d, want %+v and 32", r.RouterRule, r.Width, want)
	}
	var got []string
	for _, l := range r.Layers {
		for _, tensor := range []layout.RouterTensor{l.Weight, l.Bias, l.Selection} {
			got = append(got, fmt.Sprintf("%s %s %d", tensor.Source, tensor.Type, tensor.Bytes))
		}
	}
	if want := []string{
		"blk.1.ffn_gate_inp.weight F32 512", "  0", "blk.1.exp_probs_b.bias F32 16",
		"blk.2.ffn_gate_inp.weight BF16 256", "blk.2.ffn_gate_inp.bias F32 16", "blk.2.exp_probs_b F16 8",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What a checkpoint does not say of its routers.
func TestRouterScoring(t *testing.T) {
	for _, test := range []struct {
		gating uint32
		biased bool
		want   layout.Scoring
	}{
		{0, false, layout.ScoreSoftmax}, {0, true, layout.ScoreSigmoid}, {1, true, layout.ScoreSoftmax},
		{2, false, layout.ScoreSigmoid}, {3, false, layout.ScoreChosen},
	} {
		w := routed(0)
		add(w, gate(0), gguf.F32, 32, 4)
		if test.biased {
			add(w, "blk.0.exp_probs_b.bias", gguf.F32, 4)
		}
		if test.gating > 0 {
			w.Set("test.expert_gating_func", test.gating)
		}
		w.Set("test.expert_group_count", uint32(1)) // one group is none
		cp, err := find(w, t)
		if err != nil {
			t.Fatal(err)
		}
		if cp.Routers == nil || cp.Routers.Scoring != test.want || cp.Routers.Groups != 0 {
			t.Errorf("gating %d, biased %v: got %+v, want %s without groups", test.gating, test.biased, cp.Routers, test.want)
		}
	}
}

// Architectures that score by one function, whether their files say so or not.
func TestRouterScoringOfArchitecture(t *testing.T) {
	w := &gguf.Writer{}
	w.Set("general.architecture", "ernie4_5-moe")
	w.Set("ernie4_5-moe.expert_used_count", uint32(2))
	stackedLayer(w, 0)
	add(w, gate(0), gguf.F32, 32, 4)
	add(w, "blk.0.exp_probs_b.bias", gguf.F32, 4)
	cp, err := find(w, t)
	if err != nil || cp.Routers == nil || cp.Routers.Scoring != layout.ScoreSoftmax {
		t.Errorf("got %+v and %v, want softmax", cp.Routers, err)
	}
}

// Routers that cannot be read are no reason not to serve the experts.
func TestNoRouters(t *testing.T) {
	whole := func(w *gguf.Writer) { add(w, gate(0), gguf.F32, 32, 4); add(w, gate(1), gguf.F32, 32, 4) }
	for _, test := range []struct {
		why    string
		change func(*gguf.Writer)
	}{
		{"block 0 has no router matrix", func(w *gguf.Writer) {}},
		{"block 1 has no router matrix", func(w *gguf.Writer) { add(w, gate(0), gguf.F32, 32, 4) }},
		{"has type Q4_0", func(w *gguf.Writer) { add(w, gate(0), gguf.Q4_0, 32, 4) }},
		{"[32 5], want one row for each of 4 experts", func(w *gguf.Writer) { add(w, gate(0), gguf.F32, 32, 5) }},
		{"[128], want one row for each of 4 experts", func(w *gguf.Writer) { add(w, gate(0), gguf.F32, 128) }},
		{"has 64 columns, those before it 32", func(w *gguf.Writer) { add(w, gate(0), gguf.F32, 32, 4); add(w, gate(1), gguf.F32, 64, 4) }},
		{"[5], want one number for each of 4 experts", func(w *gguf.Writer) { whole(w); add(w, "blk.1.exp_probs_b.bias", gguf.F32, 5) }},
		{"bias has type I32", func(w *gguf.Writer) { whole(w); add(w, "blk.0.ffn_gate_inp.bias", gguf.I32, 4) }},
		{"expert_gating_func is 9", func(w *gguf.Writer) { whole(w); w.Set("test.expert_gating_func", uint32(9)) }},
		{"expert_gating_func is softmax", func(w *gguf.Writer) { whole(w); w.Set("test.expert_gating_func", "softmax") }},
		{"0 of 3 groups of 4", func(w *gguf.Writer) { whole(w); w.Set("test.expert_group_count", uint32(3)) }},
		{"3 of 2 groups", func(w *gguf.Writer) {
			whole(w)
			w.Set("test.expert_group_count", uint32(2))
			w.Set("test.expert_group_used_count", uint32(3))
		}},
	} {
		w := routed(0, 1)
		test.change(w)
		cp, err := find(w, t)
		if err != nil {
			t.Fatalf("%s: %v", test.why, err)
		}
		if cp.Routers != nil || !strings.Contains(cp.NoRouters, test.why) {
			t.Errorf("got routers %+v and %q, want none because %q", cp.Routers, cp.NoRouters, test.why)
		}
	}
}

// The routers of a real checkpoint, whose experts have other types.
func TestRoutersOfTinymoe(t *testing.T) {
	for _, name := range []string{"tinymoe-q8_0.gguf", "tinymoe-f16.gguf", "tinymoe-mxfp4_moe.gguf", "tinymoe-q4_k_m-00001-of-00003.gguf"} {
		t.Run(name, func(t *testing.T) {
			cp, err := open(t, layout.OS(), dataFile(t, name)).Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			source, err := layout.OpenInPlace(layout.OS(), cp, layout.Buffered)
			if err != nil {
				t.Fatal(err)
			}
			defer source.Close()
			r, err := source.Routers()
			if err != nil {
				t.Fatal(err)
			}
			if r.Width != 256 || r.Scoring != layout.ScoreSoftmax || len(r.Layers) != 8 || r.Bytes() != 8*32*256*4 {
				t.Errorf("got width %d, %s, %d layers, %d bytes", r.Width, r.Scoring, len(r.Layers), r.Bytes())
			}
			router, err := r.Load(7)
			if err != nil || len(router.Weight) != 32*256 || router.Bias != nil || router.Selection != nil {
				t.Errorf("got %d numbers and %v", len(router.Weight), err)
			}
		})
	}
}
