package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrNoRouters: the source holds no router matrices that can be read here.
var ErrNoRouters = errors.New("no router matrices")

// MaxRouterBytes bounds one router matrix as float32: far beyond any model that
// is known (512 experts of 7168 numbers have 14 MiB).
const MaxRouterBytes = 256 << 20

// Scoring is the function by which a router scores its experts before it adds
// the selection bias and chooses.
type Scoring string

// What is known of scoring. Without a selection bias all of them choose alike.
const (
	ScoreSoftmax      Scoring = "softmax"           // over all experts
	ScoreSigmoid      Scoring = "sigmoid"           // each expert by itself
	ScoreChosen       Scoring = "softmax-of-chosen" // the products themselves; softmax weighs the chosen
	ScoreSqrtSoftplus Scoring = "sqrt-softplus"     // each expert by itself
)

func (s Scoring) known() bool {
	switch s {
	case ScoreSoftmax, ScoreSigmoid, ScoreChosen, ScoreSqrtSoftplus:
		return true
	}
	return false
}

// RouterRule says how a model's routers choose and weigh.
type RouterRule struct {
	Scoring Scoring
	// Groups is the number of groups of neighbouring experts, of which only the
	// GroupsUsed best (by the sum of their two highest scores) may be chosen from.
	// 0 or 1 means none.
	Groups, GroupsUsed int
	// Normalised: the weights of the chosen are scaled to sum 1. Scale is what all
	// weights are multiplied by. Neither changes what is chosen.
	Normalised bool
	Scale      float64
}

// CheckpointRouters says where a checkpoint keeps its router matrices.
type CheckpointRouters struct {
	RouterRule
	Width  int                // numbers of the hidden state
	Tokens int                // rows of every hash table; 0 where no layer has one
	Layers []CheckpointRouter // one for each MoE layer
}

// CheckpointRouter is the router of one layer. Bias is added to the products,
// Selection to the scores, only to choose; both may be absent (Type "").
//
// A layer with a Hash does not choose by its scores at all: the token's number
// alone decides, and the scores only weigh what was chosen (DeepSeek V4's first
// layers). The table has Shape.TopK numbers of experts for each token.
type CheckpointRouter struct {
	Weight    RouterTensor // [expert][width]
	Bias      RouterTensor // [expert]
	Selection RouterTensor // [expert]
	Hash      RouterTensor // [token][top-k], I32 or I64; Type "" elsewhere
}

// RouterTensor is one tensor of a router: F32, F16, BF16 or Q8_0, and I32 or I64
// for a hash table.
type RouterTensor struct {
	Source string // the tensor's name in the checkpoint
	Type   string
	Span
	sum    uint32 // CRC-32C of the bytes
	summed bool   // false in a checkpoint: it has no checksums
}

// RouterMatrix is the router of one layer in memory. A hash table is loaded by
// itself: see Routers.Table.
type RouterMatrix struct {
	Weight    []float32 // [expert][width]
	Bias      []float32 // [expert]; nil if there is none
	Selection []float32 // [expert]; nil if there is none
}

// Bytes is the size of all matrices and biases as float32, and of all hash tables
// as int32, which is what they take in a store and, when all are loaded, in memory.
func (c *CheckpointRouters) Bytes(shape Shape) (n int64) {
	for i := range c.Layers {
		for _, t := range c.tensors(i, shape) {
			n += 4 * t.count
		}
	}
	return n
}

// sized is a tensor with the number of its elements.
type sized struct {
	*RouterTensor
	name  string
	shape []int64 // slowest first
	count int64
}

// tensors lists the tensors of a layer that are there, in the order of a store's file.
func (c *CheckpointRouters) tensors(layer int, shape Shape) []sized {
	r := &c.Layers[layer]
	e, w := int64(shape.Experts), int64(c.Width)
	out := []sized{{&r.Weight, "weight", []int64{e, w}, e * w}}
	if r.Bias.Type != "" {
		out = append(out, sized{&r.Bias, "bias", []int64{e}, e})
	}
	if r.Selection.Type != "" {
		out = append(out, sized{&r.Selection, "selection_bias", []int64{e}, e})
	}
	if r.Hash.Type != "" {
		t, k := int64(c.Tokens), int64(shape.TopK)
		out = append(out, sized{&r.Hash, hashName, []int64{t, k}, t * k})
	}
	return out
}

// validate reports the first way in which the description contradicts itself,
// the shape or the files.
func (c *CheckpointRouters) validate(shape Shape, files []CheckpointFile) error {
	if err := c.validateSize(shape); err != nil {
		return err
	}
	if len(c.Layers) != shape.Layers {
		return fmt.Errorf("routers of %d layers, want %d", len(c.Layers), shape.Layers)
	}
	for l := range c.Layers {
		if t := c.Layers[l].Hash; t.Type != "" && c.Tokens < 1 {
			return fmt.Errorf("layer %d: router tensor %s is a table of %d tokens", l, t.Source, c.Tokens)
		}
		for _, t := range c.tensors(l, shape) {
			want, ok := routerBytes(t.Type, t.count)
			switch {
			case !ok || (t.name == hashName) != wholeNumbers(t.Type):
				return fmt.Errorf("layer %d: router tensor %s has type %q or rows that cannot be widened", l, t.Source, t.Type)
			case t.Bytes != want:
				return fmt.Errorf("layer %d: router tensor %s has %d bytes, want %d", l, t.Source, t.Bytes, want)
			case t.File < 0 || t.File >= len(files):
				return fmt.Errorf("layer %d: router tensor %s: file %d of %d", l, t.Source, t.File, len(files))
			case t.Offset < 0 || t.Offset > files[t.File].Size-t.Bytes:
				return fmt.Errorf("layer %d: router tensor %s: %d bytes at %d lie outside %s, which has %d",
					l, t.Source, t.Bytes, t.Offset, files[t.File].Path, files[t.File].Size)
			}
		}
	}
	return nil
}

// validateSize checks what tensors and their sizes are worked out from.
func (c *CheckpointRouters) validateSize(shape Shape) error {
	if most := MaxRouterBytes / 4 / int64(shape.Experts); c.Width < 1 || int64(c.Width) > most {
		return fmt.Errorf("router matrices of %d columns for %d experts, want 1 to %d", c.Width, shape.Experts, most)
	}
	if most := MaxRouterBytes / 8 / int64(shape.TopK); c.Tokens < 0 || int64(c.Tokens) > most {
		return fmt.Errorf("hash tables of %d tokens, %d experts each, want 0 to %d", c.Tokens, shape.TopK, most)
	}
	return c.RouterRule.validate(shape)
}

func (r *RouterRule) validate(shape Shape) error {
	if !r.Scoring.known() {
		return fmt.Errorf("routers score by %q, which is not known", r.Scoring)
	}
	if r.Groups < 0 || r.Groups > shape.Experts || (r.Groups > 1 && shape.Experts%r.Groups != 0) {
		return fmt.Errorf("%d experts do not make %d equal groups", shape.Experts, r.Groups)
	}
	if r.Groups > 1 && (r.GroupsUsed < 1 || r.GroupsUsed > r.Groups) {
		return fmt.Errorf("%d of %d groups of experts are used", r.GroupsUsed, r.Groups)
	}
	if math.IsNaN(r.Scale) || math.IsInf(r.Scale, 0) {
		return fmt.Errorf("weights are scaled by %v", r.Scale)
	}
	return nil
}

// Q8_0: blocks of 32 numbers, a half-precision factor and a signed byte each.
const (
	q8Block = 32
	q8Bytes = 34
)

// routerBytes is how many bytes so many elements of a type take; false for a
// type that is not widened here.
func routerBytes(typ string, count int64) (int64, bool) {
	switch typ {
	case "F32", "I32":
		return count * 4, true
	case "I64":
		return count * 8, true
	case "F16", "BF16":
		return count * 2, true
	case "Q8_0":
		return count / q8Block * q8Bytes, count%q8Block == 0
	}
	return 0, false
}

// widen turns a tensor's bytes into float32. Length and type were validated.
func widen(typ string, raw []byte, dst []float32) {
	le := binary.LittleEndian
	switch typ {
	case "F32":
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(raw[4*i:]))
		}
	case "BF16":
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le.Uint16(raw[2*i:])) << 16)
		}
	case "F16":
		for i := range dst {
			dst[i] = halfToFloat(le.Uint16(raw[2*i:]))
		}
	case "Q8_0":
		for i := range dst {
			block := raw[i/q8Block*q8Bytes:]
			dst[i] = halfToFloat(le.Uint16(block)) * float32(int8(block[2+i%q8Block]))
		}
	}
}

// halfToFloat widens an IEEE 754 half-precision number, which is exact.
func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero or subnormal: fraction × 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*(1.0/(1<<24))))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
