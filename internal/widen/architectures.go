package widen

import "slices"

// architecture is what is special to one of GGUF's architectures.
type architecture struct {
	name string
	// wholeHeads: llama.cpp takes queries to be as wide as the residual stream, so
	// that heads are repeated with it.
	wholeHeads bool
}

// architectures are those whose tensors' roles and whose use of the residual
// stream were looked up in llama.cpp (August 2026). Others may scale something by the
// stream's width, which no tensor shows (Gemma does).
var architectures = []architecture{
	{name: "deepseek2"},
	{name: "glm4moe"},
	{name: "gpt-oss"},
	{name: "granitemoe"},
	{name: "llama"},
	{name: "olmoe", wholeHeads: true},
	{name: "qwen2moe", wholeHeads: true},
	{name: "qwen3moe"},
}

// Architectures lists the architectures that can be widened, by their GGUF names.
func Architectures() []string {
	names := make([]string, len(architectures))
	for i, a := range architectures {
		names[i] = a.name
	}
	return names
}

func findArchitecture(name string) (architecture, bool) {
	i := slices.IndexFunc(architectures, func(a architecture) bool { return a.name == name })
	if i < 0 {
		return architecture{}, false
	}
	return architectures[i], true
}
