package discover

import (
	"errors"
	"strings"
	"testing"

	"outrider/layout"
)

// How weights are stored is told by their dimensions, where these can tell.
func TestOrientation(t *testing.T) {
	const fused, normal = "model.layers.0.mlp.experts.gate_up_proj ", "model.layers.0.mlp.experts.down_proj "
	for _, test := range []struct {
		name  string
		facts Facts
		lines []string
		want  string // "" for an error
	}{
		{"fused", Facts{}, []string{fused + "BF16 E 2F H", normal + "BF16 E H F"}, "gate_up BF16 64x48 gate-first, down BF16 24x64"},
		{"fused, transposed", Facts{}, []string{fused + "BF16 E H 2F", normal + "BF16 E F H"}, "gate_up BF16 48x64 gate-first T, down BF16 64x24 T"},
		{"as wide as its experts", Facts{}, []string{fused + "BF16 E 2H H", normal + "BF16 E H H"}, "gate_up BF16 64x128 gate-first, down BF16 64x64"},
		{"the same, transposed", Facts{}, []string{fused + "BF16 E H 2H", normal + "BF16 E H H"}, "gate_up BF16 128x64 gate-first T, down BF16 64x64 T"},
		{"half as wide", Facts{}, []string{fused + "BF16 E 2F 2F", normal + "BF16 E 2F F"}, "gate_up BF16 48x48 gate-first, down BF16 24x48"},
		{"half as wide, transposed", Facts{}, []string{fused + "BF16 E 2F 2F", normal + "BF16 E F 2F"}, "gate_up BF16 48x48 gate-first T, down BF16 48x24 T"},
		{"only one turned", Facts{}, []string{fused + "BF16 E H 2F", normal + "BF16 E H F"}, ""},
		{"unlike", Facts{}, []string{fused + "BF16 E 2F H", normal + "BF16 E H 2F"}, ""},
		{"packed by two", Facts{}, []string{fused + "U8 E 2F H/2", normal + "U8 E H F/2"}, "gate_up U8 32x48 gate-first, down U8 12x64"},
		{"packed by two, transposed", Facts{}, []string{fused + "U8 E H/2 2F", normal + "U8 E F/2 H"}, "gate_up U8 48x32 gate-first T, down U8 64x12 T"},
		{"packed by eight", Facts{}, []string{fused + "I32 E 2F H/8", normal + "I32 E H F/8"}, "gate_up I32 8x48 gate-first, down I32 3x64"},
		{"packed otherwise, width known", Facts{Hidden: 64}, []string{fused + "I32 E 3 2F", normal + "I32 E 3 H"}, "gate_up I32 48x3 gate-first T, down I32 64x3 T"},
		{"packed otherwise", Facts{}, []string{fused + "I32 E 3 2F", normal + "I32 E 3 H"}, "gate_up I32 48x3 gate-first, down I32 64x3"},
		{"apart, transposed, width known", Facts{Hidden: 64}, []string{"layers.0.experts.up_proj BF16 E H F", "layers.0.experts.down_proj BF16 E F H"}, "up BF16 24x64 T, down BF16 64x24 T"},
		{"apart, width of the router", Facts{}, []string{"layers.0.experts.gate_proj BF16 E H F", "layers.0.experts.up_proj BF16 E H F", "layers.0.experts.down_proj BF16 E F H", "layers.0.gate.weight BF16 E H"},
			"gate BF16 24x64 T, up BF16 24x64 T, down BF16 64x24 T"},
		{"apart, width unknown", Facts{}, []string{"layers.0.experts.up_proj BF16 E H F", "layers.0.experts.down_proj BF16 E F H"}, "up BF16 24x64, down BF16 64x24"},
		{"gate turned", Facts{}, []string{"layers.0.experts.gate_proj BF16 E H F", "layers.0.experts.up_proj BF16 E F H", "layers.0.experts.down_proj BF16 E H F"}, ""},
		{"up turned alone", Facts{}, []string{"layers.0.experts.up_proj BF16 E F H", "layers.0.experts.down_proj BF16 E F H"}, ""},
	} {
		m := model{facts: test.facts, lines: test.lines}
		cp, err := Find(m.input(), Options{})
		switch {
		case test.want == "" && (!errors.Is(err, ErrExperts) || !strings.Contains(err.Error(), "do not fit each other")):
			t.Errorf("%s: got %v, want an error that they do not fit", test.name, err)
		case test.want != "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && record(cp.Layers[0]) != test.want:
			t.Errorf("%s: got %s, want %s", test.name, record(cp.Layers[0]), test.want)
		}
	}
}

// Fused rows alternate in GPT-OSS only, whoever wrote the file.
func TestFusion(t *testing.T) {
	for _, test := range []struct {
		format, architecture string
		want                 layout.Fusion
	}{
		{"gguf", "gptoss", layout.Interleaved}, {"gguf", "gpt-oss", layout.Interleaved}, {"gguf", "gemma4", layout.GateFirst}, {"gguf", "", layout.GateFirst},
		{"safetensors", "gpt_oss", layout.Interleaved}, {"safetensors", "qwen3_5_moe", layout.GateFirst}, {"safetensors", "", layout.GateFirst},
	} {
		m := model{format: test.format, facts: Facts{Architecture: test.architecture},
			lines: []string{"blk.0.ffn_gate_up_exps.weight F16 H 2F E", "blk.0.ffn_down_exps.weight F16 F H E"}}
		if test.format == "safetensors" {
			m.lines = []string{"layers.0.mlp.experts.gate_up_proj F16 E 2F H", "layers.0.mlp.experts.down_proj F16 E H F"}
		}
		cp, err := Find(m.input(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := cp.Layers[0].Tensors[0].Fused; got != test.want {
			t.Errorf("%s %s: got %s, want %s", test.format, test.architecture, got, test.want)
		}
	}
}
