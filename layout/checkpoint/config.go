package checkpoint

import (
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"

	"outrider/layout"
	"outrider/layout/discover"
	"outrider/layout/safetensors"
)

// config is a model's config.json: the objects that may hold a fact, the one
// that is asked first at the front.
type config struct {
	path   string
	levels []map[string]json.RawMessage
	err    error // the first fact that is no fact
}

// nests are the objects of the language model inside a model of several, and
// those that hold a part of its facts.
var nests = []string{"thinker_config", "text_config", "language_config", "llm_config", "ffn_config", "moe"}

const maxNests = 4 // of objects in objects

// factsOf reads what config.json says of the experts. The error is a
// *layout.FormatError with safetensors.ErrConfig.
func factsOf(file string, data []byte) (discover.Facts, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(finite(data), &top); err != nil {
		return discover.Facts{}, configError(file, "it is no JSON object: %v", err)
	}
	c := &config{path: file}
	c.nest(top, maxNests)
	f := discover.Facts{Architecture: c.architecture(top)}
	if name := path.Base(c.text("_name_or_path")); name != "." && name != "/" {
		f.Name = name
	}
	f.Blocks = c.number("num_hidden_layers", "num_layers", "n_layers", "n_layer")
	f.Predict = c.number("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "num_mtp_layers", "mtp_num_layers")
	f.Hidden = c.number("hidden_size", "d_model", "n_embd", "dim")
	f.Experts, f.OtherExperts = c.experts()
	if counts := c.numbers("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk", "moe_top_k", "moe_k",
		"num_selected_experts", "n_activated_experts", "num_activated_experts", "moe_num_active_primary_experts"); len(counts) > 0 {
		f.TopK = slices.Max(counts)
	}
	f.Routing = c.routing(f.Architecture)
	return f, c.err
}

func configError(file, format string, args ...any) error {
	return &layout.FormatError{Format: "safetensors", Path: file, Offset: -1, Reason: fmt.Sprintf(format, args...), Err: safetensors.ErrConfig}
}

// nest lists an object's nested ones before it: they say what the language model is.
func (c *config) nest(object map[string]json.RawMessage, depth int) {
	var parts []map[string]json.RawMessage
	for _, name := range nests {
		var inner map[string]json.RawMessage
		if depth == 0 || json.Unmarshal(object[name], &inner) != nil || inner == nil {
			continue
		}
		if name == "ffn_config" || name == "moe" {
			parts = append(parts, inner)
		} else {
			c.nest(inner, depth-1)
		}
	}
	c.levels = append(append(c.levels, object), parts...)
}

// architecture is what the model calls its kind: "qwen3_moe".
func (c *config) architecture(top map[string]json.RawMessage) string {
	var kind string
	if json.Unmarshal(top["model_type"], &kind) == nil && kind != "" {
		return kind
	}
	if kind = c.text("model_type"); kind != "" {
		return kind
	}
	var names []string
	if json.Unmarshal(top["architectures"], &names) == nil && len(names) > 0 {
		return names[0]
	}
	return ""
}

// find is the first of the values under any of the names; nil if all are missing or null.
func (c *config) find(names ...string) (string, json.RawMessage) {
	for _, level := range c.levels {
		for _, name := range names {
			if v := level[name]; len(v) > 0 && string(v) != "null" {
				return name, v
			}
		}
	}
	return "", nil
}

func (c *config) text(names ...string) (s string) {
	if _, v := c.find(names...); v != nil {
		_ = json.Unmarshal(v, &s) // another kind of value says nothing
	}
	return s
}

// number is a whole number of 0 or more, 0 if it is missing.
func (c *config) number(names ...string) int {
	list := c.numbers(names...)
	if len(list) == 0 {
		return 0
	}
	return list[0]
}

// numbers is a whole number, or a list of them (one a layer), of 0 or more.
func (c *config) numbers(names ...string) []int {
	name, v := c.find(names...)
	if v == nil {
		return nil
	}
	var one float64
	list := []float64{}
	if json.Unmarshal(v, &one) == nil {
		list = append(list, one)
	} else if err := json.Unmarshal(v, &list); err != nil {
		c.wrong(name, v)
		return nil
	}
	out := make([]int, len(list))
	for i, x := range list {
		if x < 0 || x > layout.MaxRecords || x != math.Trunc(x) {
			c.wrong(name, v)
			return nil
		}
		out[i] = int(x)
	}
	return out
}

func (c *config) wrong(name string, v json.RawMessage) {
	if c.err == nil {
		c.err = configError(c.path, "%s is %.60s, want a whole number from 0 to %d, or a list of them", name, v, layout.MaxRecords)
	}
}

// experts is the number of a layer's routed experts. A model of text and images
// (Ernie 4.5 VL) lists one number for each: the second kind is others.
func (c *config) experts() (routed, others int) {
	list := c.numbers("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts", "moe_num_primary_experts")
	switch {
	case len(list) == 0:
		return 0, 0
	case len(list) == 2 && c.levels[0]["moe_num_experts"] != nil:
		return list[0], list[1]
	case slices.Max(list) != slices.Min(list):
		return 0, 0 // layers differ: the tensors tell
	}
	return list[0], 0
}

// finite replaces the numbers that JSON does not have, but Python writes
// (Infinity, NaN), by null.
func finite(data []byte) []byte {
	out := make([]byte, 0, len(data))
	quoted := false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case quoted && b == '\\' && i+1 < len(data):
			out = append(out, b)
			i++
		case b == '"':
			quoted = !quoted
		case !quoted:
			if n := notFinite(data[i:]); n > 0 {
				out = append(out, "null"...)
				i += n - 1
				continue
			}
		}
		out = append(out, data[i])
	}
	return out
}

// notFinite is the length of such a number at the start of data, or 0.
func notFinite(data []byte) int {
	for _, word := range []string{"Infinity", "-Infinity", "NaN"} {
		if len(data) >= len(word) && string(data[:len(word)]) == word {
			return len(word)
		}
	}
	return 0
}
