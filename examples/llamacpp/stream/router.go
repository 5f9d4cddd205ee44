package stream

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"outrider/examples/llamacpp/ggml"
)

// Names that llama.cpp gives what belongs to a layer's router.
const (
	probsNode  = "ffn_moe_probs-" // the block's number follows
	routerLeaf = ".ffn_gate_inp.weight"
)

// maxChain bounds the way from a router's choice back to what it saw.
const maxChain = 16

// routing is what a router chose for the tokens of a batch.
type routing struct {
	block  int
	chosen *ggml.Tensor // int32: [top-k, tokens], a view of rows of all experts
	probs  *ggml.Tensor // float32: [experts, tokens]; nil where they can't be seen
	hidden *ggml.Tensor // float32: [width, tokens], what the router saw; nil likewise
}

// readRouting looks at the node of the gate weights and at those that it was made from.
// They are still in memory: the weights were just taken from the probabilities, and the
// experts compute with the choice and with the state that the router saw.
func readRouting(weights *ggml.Tensor, experts int) (r routing, err error) {
	number, ok := strings.CutPrefix(weights.Name(), ggml.WeightsNode)
	if r.block, err = strconv.Atoi(number); !ok || err != nil {
		return r, fmt.Errorf("node %q holds no gate weights", weights.Name())
	}
	t := weights.Sources[1]
	if t == nil || t.Type != ggml.TypeI32 || t.Data == nil || t.Dims[0] < 1 || t.Dims[0] > int64(experts) || t.Dims[2] != 1 || t.Dims[3] != 1 ||
		t.Strides[0] != 4 || t.Strides[1] < 4*uint64(t.Dims[0]) {
		return r, fmt.Errorf("block %d: the router's choice is not understood: %s", r.block, describe(t))
	}
	r.chosen = t
	probs := probsNode + number
	for x, n := t.Sources[0], 0; x != nil && n < maxChain; x, n = x.Sources[0], n+1 {
		if r.probs == nil && x.HasName(probs) && rows(x, int64(experts), t.Dims[1]) {
			r.probs = x
		}
		if leaf := x.Sources[0]; leaf != nil && strings.HasSuffix(leaf.Name(), routerLeaf) {
			if h := x.Sources[1]; h != nil && rows(h, leaf.Dims[0], t.Dims[1]) {
				r.hidden = h
			}
			break
		}
	}
	return r, nil
}

// describe is a tensor's form, for errors.
func describe(t *ggml.Tensor) string {
	if t == nil {
		return "there is none"
	}
	return fmt.Sprintf("%q has type %d, dimensions %v and strides %v", t.Name(), t.Type, t.Dims, t.Strides)
}

// rows reports whether a node is a float32 matrix of that form.
func rows(t *ggml.Tensor, width, height int64) bool {
	return t.Type == ggml.TypeF32 && t.Dims == [4]int64{width, height, 1, 1} && t.Strides[0] == 4 && t.Data != nil
}

// gates turns the probabilities of the chosen experts into weights that add up to 1.
// Routers differ in what they do with them; a forecast needs their proportion only.
func gates(out, probs []float32, ids []int32) []float32 {
	var sum float32
	least := float32(math.Inf(1))
	for _, e := range ids {
		out = append(out, probs[e])
		sum += probs[e]
		least = min(least, probs[e])
	}
	w := out[len(out)-len(ids):]
	if least < 0 { // they are logits: the softmax comes after the choice
		most := w[0]
		for _, v := range w {
			most = max(most, v)
		}
		sum = 0
		for i, v := range w {
			w[i] = float32(math.Exp(float64(v - most)))
			sum += w[i]
		}
	}
	for i := range w {
		if w[i] /= sum; w[i] != w[i] {
			w[i] = 0
		}
	}
	return out
}
