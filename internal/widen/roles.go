package widen

import (
	"strconv"
	"strings"
)

// side is what a dimension of a tensor stands for.
type side uint8

const (
	fixed  side = iota // keeps its size: experts, vocabulary, low ranks
	stream             // the residual stream
	inner              // the inner width of a feed-forward block
	heads              // all query or key heads together
)

// role is what a tensor does, by its name.
type role struct {
	// in is the side that a matrix reads: its columns, which are repeated and
	// divided. out is the side that it writes: its rows, which are repeated.
	in, out side
	// inParts and outParts are how many vectors of a side lie one after another;
	// 0 means 1.
	inParts, outParts int
	// values: there is no product, the numbers of the first dimension are those
	// of a vector (a norm, a bias) or of vectors (an embedding) of the side out.
	values bool
	family string // of an inner width, which all tensors of a block and family share
}

func matrix(in, out side) role { return role{in: in, out: out} }
func vector(of side) role      { return role{out: of, values: true} }

// bias is the role of a matrix's bias.
func (r role) bias() role {
	return role{out: r.out, outParts: r.outParts, values: true, family: r.family}
}

// modelRoles are the tensors outside the blocks.
var modelRoles = map[string]role{
	"token_embd":         vector(stream),
	"token_embd_norm":    vector(stream),
	"output_norm":        vector(stream),
	"output":             matrix(stream, fixed),
	"rope_freqs":         matrix(fixed, fixed),
	"rope_factors_long":  matrix(fixed, fixed),
	"rope_factors_short": matrix(fixed, fixed),
}

// blockRoles are the tensors of a block, but for the feed-forward ones.
var blockRoles = map[string]role{
	"attn_norm":           vector(stream),
	"attn_q":              matrix(stream, heads),
	"attn_k":              matrix(stream, heads),
	"attn_v":              matrix(stream, heads),
	"attn_output":         matrix(heads, stream),
	"attn_q_norm":         vector(heads),
	"attn_k_norm":         vector(heads),
	"attn_sinks":          matrix(fixed, fixed),
	"attn_q_a":            matrix(stream, fixed),
	"attn_q_a_norm":       matrix(fixed, fixed),
	"attn_q_b":            matrix(fixed, fixed),
	"attn_kv_a_mqa":       matrix(stream, fixed),
	"attn_kv_a_norm":      matrix(fixed, fixed),
	"attn_kv_b":           matrix(fixed, fixed),
	"attn_k_b":            matrix(fixed, fixed),
	"attn_v_b":            matrix(fixed, fixed),
	"rope_freqs":          matrix(fixed, fixed),
	"post_attention_norm": vector(stream),
	"ffn_norm":            vector(stream),
	"ffn_gate_inp":        matrix(stream, fixed),
	"ffn_gate_inp_shexp":  matrix(stream, fixed),
	"exp_probs_b":         matrix(fixed, fixed),

	"nextn.eh_proj":          {in: stream, inParts: 2, out: stream},
	"nextn.embed_tokens":     vector(stream),
	"nextn.enorm":            vector(stream),
	"nextn.hnorm":            vector(stream),
	"nextn.shared_head_norm": vector(stream),
	"nextn.shared_head_head": matrix(stream, fixed),
}

// feedForward are the projections of dense blocks, of routed and of shared experts.
var feedForward = map[string]role{
	"ffn_gate":    matrix(stream, inner),
	"ffn_up":      matrix(stream, inner),
	"ffn_gate_up": {in: stream, out: inner, outParts: 2},
	"ffn_down":    matrix(inner, stream),
}

// known is what a tensor's name says.
type known struct {
	role
	block  int  // -1 outside the blocks
	routed bool // a routed expert's
}

// parseName reads a name segment by segment. Names are those of llama.cpp.
func parseName(name string) (known, bool) {
	stem, block := name, -1
	roles := modelRoles
	if rest, ok := strings.CutPrefix(name, "blk."); ok {
		number, after, _ := strings.Cut(rest, ".")
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return known{}, false
		}
		stem, block, roles = after, int(n), blockRoles
	}
	k := known{block: block}
	if stem == "exp_probs_b" { // as some converters wrote it
		k.role = roles[stem]
		return k, block >= 0
	}
	dot := strings.LastIndexByte(stem, '.')
	if dot < 0 {
		return known{}, false
	}
	stem, kind := stem[:dot], stem[dot+1:]
	found, ok := roles[stem]
	if !ok && block >= 0 {
		found, k.routed, ok = parseFeedForward(stem)
	}
	switch kind {
	case "weight":
		k.role = found
	case "bias":
		k.role = found
		if !found.values {
			k.role = found.bias()
		}
	case "scale", "input_scale":
		k.role, ok = matrix(fixed, fixed), ok && !found.values
	default:
		ok = false
	}
	return k, ok
}

// parseFeedForward reads "ffn_up", "ffn_up_exps", "ffn_up_shexp" and, of early
// Mixtral files, "ffn_up.7".
func parseFeedForward(stem string) (r role, routed, ok bool) {
	base, family := stem, "dense"
	if before, number, cut := strings.Cut(stem, "."); cut {
		if _, err := strconv.ParseUint(number, 10, 31); err != nil {
			return role{}, false, false
		}
		base, family, routed = before, "routed", true
	}
	for _, experts := range []struct{ suffix, family string }{{"_exps", "routed"}, {"_shexp", "shared"}} {
		if before, cut := strings.CutSuffix(base, experts.suffix); cut && !routed {
			base, family, routed = before, experts.family, experts.family == "routed"
			break
		}
	}
	r, ok = feedForward[base]
	r.family = family
	return r, routed, ok
}
