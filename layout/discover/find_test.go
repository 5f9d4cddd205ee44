package discover

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
)

func TestFamilies(t *testing.T) {
	for i := range families {
		m := &families[i]
		t.Run(m.name, func(t *testing.T) {
			in := m.input()
			cp, err := Find(in, Options{})
			if err != nil {
				t.Fatal(err)
			}
			checkWhole(t, in, cp)
			if got := record(cp.Layers[0]); got != m.want {
				t.Errorf("got  %s\nwant %s", got, m.want)
			}
			if got := groupsOf(cp); !slices.Equal(got, m.resident) {
				t.Errorf("got groups %q, want %q", got, m.resident)
			}
			if (cp.Routers != nil) != m.routers {
				t.Errorf("got routers %v (%s), want them: %v", cp.Routers, cp.NoRouters, m.routers)
			}
			want := m.blocks
			if want == nil {
				want = []int{0, 1}
			}
			for l, id := range want {
				if len(want) != cp.Shape.Layers || cp.Shape.LayerID(l) != id {
					t.Fatalf("got %+v, want blocks %v", cp.Shape, want)
				}
			}
			if cp.Family == "" {
				t.Error("got no family")
			}
		})
	}
}

// Prediction blocks become the last layers when asked for.
func TestPredict(t *testing.T) {
	for name, id := range map[string]int{"qwen3-next with mtp": 2, "qwen3.5-moe": 2, "deepseek-v3": 3, "deepseek-v4": 2, "step-3.5": 2} {
		m := family(t, name)
		in := m.input()
		cp, err := Find(in, Options{Predict: true})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		checkWhole(t, in, cp)
		if n := cp.Shape.Layers; n != 3 || cp.Shape.LayerID(2) != id {
			t.Errorf("%s: got %+v, want a third layer, block %d", name, cp.Shape, id)
		}
		for _, g := range cp.Resident {
			if g.LeftOut {
				t.Errorf("%s: %s is left out", name, g.Name)
			}
		}
	}
}

func family(t *testing.T, name string) *model {
	t.Helper()
	i := slices.IndexFunc(families, func(m model) bool { return m.name == name })
	if i < 0 {
		t.Fatalf("no family %q", name)
	}
	return &families[i]
}

// laidOut lists the tensors that a sound model's records are made of.
func laidOut(t *testing.T, in Input) map[string]bool {
	t.Helper()
	cp, err := Find(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			for e := range cp.Shape.Experts {
				names[strings.ReplaceAll(cp.Layers[l].Tensors[i].Source, "{expert}", fmt.Sprint(e))] = true
			}
		}
	}
	return names
}

// Of every family, a model that lacks one expert tensor, or has one under
// another name, with other dimensions, of another type or too many, is refused
// with a name of that tensor's kind.
func TestFamiliesDamaged(t *testing.T) {
	refused := func(t *testing.T, what string, in Input) {
		t.Helper()
		_, err := Find(in, Options{})
		var fe *layout.FormatError
		if !errors.Is(err, ErrExperts) && !errors.Is(err, ErrNoExperts) || !errors.As(err, &fe) {
			t.Errorf("%s: got %v, want an error of experts", what, err)
		}
	}
	for i := range families {
		m := &families[i]
		t.Run(m.name, func(t *testing.T) {
			whole := m.input()
			names := laidOut(t, whole)
			for j := range whole.Tensors {
				name := whole.Tensors[j].Name
				if !names[name] {
					continue
				}
				in := m.input()
				in.Tensors = slices.Delete(in.Tensors, j, j+1)
				refused(t, "without "+name, in)

				in = m.input()
				in.Tensors[j].Name += ".x"
				refused(t, "renamed "+name, in)

				in = m.input()
				extra := in.Tensors[j]
				extra.Name += "_x"
				in.Tensors = append(in.Tensors, extra)
				refused(t, "left over "+extra.Name, in)

				if strings.Count(strings.Join(m.lines, " "), "{E}") > 0 {
					in = m.input()
					in.Tensors[j].Type = "F64"
					refused(t, "other type of "+name, in)
				}
				if d := in.Tensors[j].Dims; len(d) > 1 && d[0] != d[len(d)-1] {
					in = m.input()
					slices.Reverse(in.Tensors[j].Dims)
					refused(t, "turned "+name, in)
				}
			}
		})
	}
}

// many are shares of one expert's tensor for so many memory nodes.
func many(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("blk.0.ffn_up_exps.0.numa.%d.weight F16 H F", i))
	}
	return out
}

func TestErrors(t *testing.T) {
	stackedLines := []string{"model.layers.{L}.mlp.experts.gate_up_proj BF16 E 2F H", "model.layers.{L}.mlp.experts.down_proj BF16 E H F"}
	single := at("model.layers.{L}.mlp.experts", linear)
	for _, test := range []struct {
		name  string
		facts Facts
		opts  Options
		lines []string
		is    error
		want  string
	}{
		{"nothing", Facts{}, Options{}, nil, ErrNoExperts, "none at all"},
		{"dense", Facts{Architecture: "llama"}, Options{}, lines(dense), ErrNoExperts, `architecture "llama"`},
		{"names what is there", Facts{}, Options{}, lines(dense, "model.layers.0.moeblock.thing BF16 H"), ErrNoExperts, "model.layers.0.moeblock.thing"},
		{"unknown names", Facts{}, Options{}, lines(nil, "model.layers.0.ffn.experts.expert_0.fc1.weight BF16 F H"), ErrExperts, `"model.layers.0.ffn.experts.expert_0.fc1.weight" is named like`},
		{"no block number", Facts{}, Options{}, lines(single, "model.experts.0.w1.weight BF16 F H"), ErrExperts, `"model.experts.0.w1.weight" is named like`},
		{"experts before the number", Facts{}, Options{}, lines(single, "experts.layers.0.w1.weight BF16 F H"), ErrExperts, "experts.layers.0.w1.weight"},
		{"other kind of experts", Facts{}, Options{}, lines(single, "model.layers.0.mlp.spare_experts.0.w1.weight BF16 F H"), ErrExperts, "spare_experts"},
		{"only prediction", Facts{}, Options{}, at("mtp.layers.0.mlp.experts", linear), ErrNoExperts, `"mtp.layers.0.mlp.experts.0.gate_proj.weight"`},
		{"two stacks", Facts{}, Options{}, lines(single, at("other.layers.{L}.mlp.experts", linear)), ErrExperts, `"other.layers.0.mlp.experts.0.gate_proj.weight"`},
		{"fused and apart", Facts{}, Options{}, lines(stackedLines, single), ErrExperts, "all experts in one tensor"},
		{"fused and gate", Facts{}, Options{}, lines(stackedLines, "model.layers.0.mlp.experts.gate_proj BF16 E F H"), ErrExperts, "gate_up and also gate"},
		{"mixed forms", Facts{}, Options{}, lines(single[:2], "model.layers.{L}.mlp.experts.down_proj BF16 E H F"), ErrExperts, "all experts in one tensor"},
		{"two names of one", Facts{}, Options{}, lines(single, "model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight BF16 F H"), ErrExperts, "two kinds of names"},
		{"two kinds of weights", Facts{}, Options{}, lines(stackedLines, "model.layers.0.mlp.experts.down_proj.weight_packed I32 E H F/8"), ErrExperts, "for the same projection"},
		{"side of nothing", Facts{}, Options{}, lines(stackedLines, "model.layers.0.mlp.experts.up_proj_bias BF16 E F"), ErrExperts, `"model.layers.0.mlp.experts.up_proj_bias" belongs to no record`},
		{"top-k unknown", Facts{TopK: -1, TopKRemedy: "give --top-k"}, Options{}, single, ErrExperts, "give --top-k"},
		{"top-k too large", Facts{}, Options{TopK: 5}, single, ErrExperts, "top-k 5"},
		{"more than told", Facts{Experts: 3}, Options{}, single, ErrExperts, `experts.3.gate_proj.weight": the model has 3`},
		{"fewer than told", Facts{Experts: 8}, Options{}, single, ErrExperts, "block 0 has no gate of expert 4; 4 of 8 experts"},
		{"fewer than told, stacked", Facts{Experts: 8}, Options{}, stackedLines, ErrExperts, "has shape [4 48 64], want 3 of them, the first 8"},
		{"beyond the blocks", Facts{Blocks: 1}, Options{}, single, ErrExperts, `"model.layers.1.mlp.experts.0.gate_proj.weight" lies beyond the model's 1 blocks`},
		{"router without experts", Facts{Experts: 4}, Options{}, lines(single, "model.layers.5.mlp.gate.weight BF16 E H"), ErrExperts, "block 5 has a router"},
		{"one layer without a gate", Facts{}, Options{}, lines(single, "model.layers.5.mlp.experts.{E}.up_proj.weight BF16 F H", "model.layers.5.mlp.experts.{E}.down_proj.weight BF16 H F"), ErrExperts, "block 5 has no gate"},
		{"one layer without a bias", Facts{}, Options{}, lines(stackedLines, "model.layers.1.mlp.experts.down_proj_bias BF16 E H"), ErrExperts, "block 0 has no down.bias"},
		{"flat without a count", Facts{}, Options{}, family(t, "dbrx").lines, ErrExperts, "config.json"},
		{"a part is missing", Facts{}, Options{}, lines(grokParts("layers.{L}.experts.{E}")[:5]), ErrExperts, "1 parts of up"},
		{"far too many parts", Facts{Experts: 4}, Options{}, many(200), ErrExperts, "block 0 has 200 kinds of expert tensors"},
		{"no bytes", Facts{}, Options{}, lines(nil, "layers.0.experts.up_proj BF16 E 0 H", "layers.0.experts.down_proj BF16 E H 0"), ErrExperts, "0 bytes"},
		{"same block twice", Facts{Blocks: 1, Predict: 1}, Options{Predict: true}, lines(single, at("mtp.layers.0.mlp.experts", linear)), ErrExperts, "two blocks with number 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := model{facts: test.facts, lines: test.lines}
			in := m.input()
			in.Facts.TopK = max(in.Facts.TopK, 0)
			_, err := Find(in, test.opts)
			var fe *layout.FormatError
			if !errors.Is(err, test.is) || !errors.As(err, &fe) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a FormatError with %v and %q", err, test.is, test.want)
			}
		})
	}
}
