package widen

import (
	"maps"
	"strings"
	"testing"
)

// Tensors by what they do, for the models below. Every name is written out with
// what is expected of it.
var (
	ends = map[string]string{"token_embd.weight": "H V", "output_norm.weight": "H", "output.weight": "/H V"}

	attention = map[string]string{"attn_norm.weight": "H", "attn_q.weight": "/H A", "attn_k.weight": "/H K", "attn_v.weight": "/H K",
		"attn_output.weight": "/A H", "ffn_norm.weight": "H"}
	attentionBias = map[string]string{"attn_q.bias": "A", "attn_k.bias": "K", "attn_v.bias": "K", "attn_output.bias": "H"}
	latent        = map[string]string{"attn_norm.weight": "H", "attn_q_a.weight": "/H 3", "attn_q_a_norm.weight": "3", "attn_q_b.weight": "3 8",
		"attn_kv_a_mqa.weight": "/H 4", "attn_kv_a_norm.weight": "4", "attn_kv_b.weight": "4 8", "attn_k_b.weight": "4 4 2", "attn_v_b.weight": "4 4 2",
		"attn_output.weight": "/A H", "ffn_norm.weight": "H"}

	routed = map[string]string{"ffn_gate_inp.weight": "/H E", "ffn_gate_exps.weight": "/H F E", "ffn_up_exps.weight": "/H F E", "ffn_down_exps.weight": "/F H E"}
	fused  = map[string]string{"ffn_gate_inp.weight": "/H E", "ffn_gate_up_exps.weight": "/H 2F E", "ffn_gate_up_exps.bias": "2F E", "ffn_down_exps.weight": "/F H E"}
	biased = map[string]string{"ffn_gate_inp.bias": "E", "ffn_gate_exps.bias": "F E", "ffn_up_exps.bias": "F E", "ffn_down_exps.bias": "H E"}
	scales = map[string]string{"ffn_down_exps.scale": "E", "ffn_up_exps.input_scale": "E"}
	shared = map[string]string{"ffn_gate_shexp.weight": "/H S", "ffn_up_shexp.weight": "/H S", "ffn_down_shexp.weight": "/S H"}
	dense  = map[string]string{"ffn_gate.weight": "/H D", "ffn_up.weight": "/H D", "ffn_up.bias": "D", "ffn_down.weight": "/D H", "ffn_down.bias": "H"}
	legacy = map[string]string{"ffn_gate_inp.weight": "/H 2", "ffn_gate.0.weight": "/H F", "ffn_up.0.weight": "/H F", "ffn_down.0.weight": "/F H",
		"ffn_gate.1.weight": "/H F", "ffn_up.1.weight": "/H F", "ffn_down.1.weight": "/F H"}
)

// block puts tensors under blk.N.
func block(n string, groups ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, group := range groups {
		for name, dims := range group {
			out["blk."+n+"."+name] = dims
		}
	}
	return out
}

func join(groups ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, group := range groups {
		maps.Copy(out, group)
	}
	return out
}

// models are small ones of all architectures, after llama.cpp's tables.
var models = map[string]model{
	"qwen3moe": {architecture: "qwen3moe", meta: map[string]any{"expert_feed_forward_length": uint32(5), "attention.key_length": uint32(2)},
		tensors: join(ends, block("0", attention, routed, scales, map[string]string{"attn_q_norm.weight": "2", "attn_k_norm.weight": "2"}))},
	"qwen2moe": {architecture: "qwen2moe", meta: map[string]any{"expert_feed_forward_length": uint32(5), "expert_shared_feed_forward_length": uint32(4)},
		tensors: join(ends, block("0", attention, attentionBias, routed, shared, map[string]string{"ffn_gate_inp_shexp.weight": "/H"}))},
	"olmoe": {architecture: "olmoe",
		tensors: join(ends, block("0", attention, routed, map[string]string{"attn_q_norm.weight": "A", "attn_k_norm.weight": "K"}))},
	"llama": {architecture: "llama", meta: map[string]any{"expert_count": uint32(2)},
		tensors: join(ends, map[string]string{"rope_freqs.weight": "1"}, block("0", attention, legacy))},
	"deepseek2": {architecture: "deepseek2", meta: map[string]any{"expert_feed_forward_length": uint32(5), "attention.key_length": uint32(4),
		"attention.value_length": uint32(4), "rope.dimension_count": uint32(1)},
		tensors: join(ends, block("0", latent, dense), block("1", latent, routed, shared, map[string]string{"exp_probs_b.bias": "E"}))},
	"gpt-oss": {architecture: "gpt-oss", meta: map[string]any{"expert_feed_forward_length": uint32(5)},
		tensors: join(ends, block("0", attention, attentionBias, routed, biased, map[string]string{"attn_sinks.weight": "3", "post_attention_norm.weight": "H"}))},
	"glm4moe": {architecture: "glm4moe", meta: map[string]any{"expert_feed_forward_length": uint32(5)},
		tensors: join(ends, block("0", attention, fused, shared, map[string]string{"exp_probs_b": "E"}),
			block("1", attention, routed, map[string]string{"nextn.eh_proj.weight": "/2H H", "nextn.embed_tokens.weight": "H V", "nextn.enorm.weight": "H",
				"nextn.hnorm.weight": "H", "nextn.shared_head_norm.weight": "H", "nextn.shared_head_head.weight": "/H V"}))},
	"granitemoe": {architecture: "granitemoe", tensors: join(ends, block("0", attention, routed, shared))},
}

// Every number of every tensor of every architecture, in three enlargements.
func TestArchitectures(t *testing.T) {
	for _, name := range Architectures() {
		m, ok := models[name]
		if !ok {
			t.Errorf("%s: no test model", name)
			continue
		}
		for _, o := range []Options{{2, 4}, {4, 1}, {1, 2}} {
			plan, small, wide := enlarge(t, inMemory(t, m.writer(t)), o)
			factors := map[byte]int64{'H': int64(o.Width), 'F': int64(o.FFN), 'D': int64(o.FFN), 'S': int64(o.FFN)}
			if name == "olmoe" || name == "qwen2moe" {
				factors['A'], factors['K'] = int64(o.Width), int64(o.Width)
			}
			if want := o.Width > 1 && factors['A'] > 0; plan.HeadsToo != want {
				t.Errorf("%s %v: got heads too: %v, want %v", name, o, plan.HeadsToo, want)
			}
			for tensor, text := range m.tensors {
				dims, divided := parseDims(t, text)
				before, _ := floats(t, small, tensor)
				after, shape := floats(t, wide, tensor)
				if err := compareTensor(before, after, shape, dims, factors, divided); err != nil {
					t.Errorf("%s %v: %s: %v", name, o, tensor, err)
				}
			}
			if got, want := len(wide.Tensors()), len(m.tensors); got != want {
				t.Errorf("%s: got %d tensors, want %d", name, got, want)
			}
			if plan.Blocks != 1+strings.Count(name, "glm4moe") || plan.ExpertWidth != 5*int64(o.FFN) {
				t.Errorf("%s: got %d blocks and inner width %d, want 1 (glm4moe 2) and %d", name, plan.Blocks, plan.ExpertWidth, 5*o.FFN)
			}
		}
	}
}

// A tied output becomes a tensor of its own: only one of the two is divided.
func TestTiedOutput(t *testing.T) {
	m := models["granitemoe"]
	m.tensors = maps.Clone(m.tensors)
	delete(m.tensors, "output.weight")
	plan, small, wide := enlarge(t, inMemory(t, m.writer(t)), Options{4, 1})
	dims, _ := parseDims(t, "H V")
	before, _ := floats(t, small, "token_embd.weight")
	for name, divided := range map[string]bool{"token_embd.weight": false, "output.weight": true} {
		after, shape := floats(t, wide, name)
		if err := compareTensor(before, after, shape, dims, map[byte]int64{'H': 4}, divided); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !plan.Untied {
		t.Error("got no word of it, want Untied")
	}
	if plan, _, wide := enlarge(t, inMemory(t, m.writer(t)), Options{1, 4}); plan.Untied || len(wide.Tensors()) != len(m.tensors) {
		t.Errorf("an unchanged stream: got untied %v and %d tensors, want %d", plan.Untied, len(wide.Tensors()), len(m.tensors))
	}
}
