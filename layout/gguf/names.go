package gguf

import (
	"strconv"
	"strings"
)

// namePattern is what messages show of the names looked for.
const namePattern = "blk.N.ffn_{gate,up,gate_up,down}_exps.weight or blk.N.ffn_{gate,up,down}.E.weight"

// recordOrder is the order in which a layer consumes an expert's tensors, and
// so the order of a record: what comes before the activation function first.
var recordOrder = []string{
	"gate", "up", "gate_up",
	"gate.bias", "gate.scale", "gate.input_scale",
	"up.bias", "up.scale", "up.input_scale",
	"gate_up.bias", "gate_up.scale", "gate_up.input_scale",
	"down",
	"down.bias", "down.scale", "down.input_scale",
}

// stacked is the expert number of a tensor that holds all experts of a layer.
const stacked = -1

// expertName is what the name of a routed expert's tensor says.
type expertName struct {
	block  int    // the model's block number
	part   string // "gate", "down.bias": one of recordOrder
	expert int    // stacked, or the one expert the tensor holds
}

type nameClass uint8

const (
	notExpert  nameClass = iota // dense, shared, router, norm: resident
	isExpert                    // of a routed expert
	likeExpert                  // looks like an expert's tensor, but is none that is known
)

// parseName reads a tensor's name segment by segment; parts of a segment never
// count, so that ffn_gate_inp, ffn_gate_shexp or ffn_gate_chexps do not match.
func parseName(name string) (expertName, nameClass) {
	seg := strings.Split(name, ".")
	if e, ok := perExpert(seg); ok {
		return e, isExpert
	}
	for i, s := range seg {
		if !strings.HasPrefix(s, "ffn_") || !strings.HasSuffix(s, "_exps") || s == "ffn_norm_exps" {
			continue
		}
		part, known := partName(strings.TrimSuffix(s, "_exps"), seg[i+1:])
		block, numbered := blockNumber(seg[:i])
		if !known || !numbered {
			return expertName{}, likeExpert
		}
		return expertName{block: block, part: part, expert: stacked}, isExpert
	}
	return expertName{}, notExpert
}

// perExpert reads the names of early Mixtral files: blk.N.ffn_gate.E.weight.
func perExpert(seg []string) (expertName, bool) {
	if len(seg) != 5 {
		return expertName{}, false
	}
	block, ok1 := blockNumber(seg[:2])
	expert, ok2 := number(seg[3])
	part, ok3 := partName(seg[2], seg[4:])
	return expertName{block: block, part: part, expert: expert}, ok1 && ok2 && ok3
}

func blockNumber(seg []string) (int, bool) {
	if len(seg) != 2 || seg[0] != "blk" {
		return 0, false
	}
	return number(seg[1])
}

// number accepts decimal digits without a leading zero, so that no two names mean one number.
func number(s string) (int, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return int(n), err == nil && strconv.FormatUint(n, 10) == s
}

// partName turns "ffn_gate" and the segments after it into a part of a record.
func partName(ffn string, after []string) (string, bool) {
	if len(after) != 1 {
		return "", false
	}
	projection, ok := strings.CutPrefix(ffn, "ffn_")
	switch projection {
	case "gate", "up", "gate_up", "down":
	default:
		return "", false
	}
	switch after[0] {
	case "weight":
		return projection, ok
	case "bias", "scale", "input_scale":
		return projection + "." + after[0], ok
	}
	return "", false
}
