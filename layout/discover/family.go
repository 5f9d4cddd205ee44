package discover

import (
	"strings"

	"outrider/layout"
)

// kind is an architecture as families are written: "Qwen3_MoE" is "qwen3-moe".
func kind(architecture string) string {
	return strings.ReplaceAll(strings.ToLower(architecture), "_", "-")
}

// llamaFamilies are the architectures that llama.cpp calls otherwise than their makers.
var llamaFamilies = map[string]string{
	"qwen2moe": "qwen2-moe", "qwen3moe": "qwen3-moe", "qwen3next": "qwen3-next", "qwen3vlmoe": "qwen3-vl-moe",
	"gptoss": "gpt-oss", "glm4moe": "glm4-moe", "granitemoe": "granite-moe", "granitehybrid": "granite-moe-hybrid",
	"lfm2moe": "lfm2-moe", "phimoe": "phi-moe", "ernie4-5-moe": "ernie4-5-moe", "hunyuan-moe": "hunyuan-moe",
	"nemotron-h-moe": "nemotron-h-moe", "bailingmoe": "bailing-moe", "bailingmoe2": "bailing-moe-v2",
	"exaone-moe": "exaone-moe", "kimi-linear": "kimi-linear", "llama": "mixtral",
}

// family guesses the model's kind, for people: by its architecture, or else by
// how its experts are named.
func (f *finder) family() string {
	k := kind(f.Facts.Architecture)
	if f.Format == "gguf" && llamaFamilies[k] != "" {
		return llamaFamilies[k]
	}
	if k != "" {
		return k
	}
	g := f.layers[0].groups[0]
	t := f.tensor(g.members[0])
	if !g.stacked() {
		return "like " + t.Name[:g.from] + layout.ExpertMark + t.Name[g.to:]
	}
	return "like " + t.Name
}
