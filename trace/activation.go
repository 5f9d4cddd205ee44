package trace

import "outrider/layout"

// Phase says what kind of pass a token was routed in.
type Phase uint8

const (
	PhaseUnknown Phase = iota
	Prefill            // a token of a prompt, routed together with others
	Decode             // a generated token, routed alone in its sequence
)

// String is the word used in files: "prefill", "decode", "unknown".
func (p Phase) String() string {
	switch p {
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	}
	return "unknown"
}

// Header describes a trace.
type Header struct {
	Model string
	Shape layout.Shape
	// Phase is the phase of all tokens, or PhaseUnknown where it differs or is not known.
	Phase   Phase
	Weights bool   // tokens carry gate weights
	Tokens  bool   // tokens carry token ids
	Source  string // where the trace was recorded
	Note    string

	// IDs, Ranked and Sequences are what the source told beyond the choices. An
	// importer leaves unknown what a form cannot tell.
	IDs IDs
	// Ranked: each row lists the expert with the highest gate weight first.
	Ranked Fact
	// Sequences: Seq tells sequences apart, and Pos is a position in one. If
	// not, the trace has its tokens in the order they were routed and no more: Seq
	// is that of a file or a pass, and Pos counts.
	Sequences Fact
}

// Activation is what the routers of all layers chose for one token.
type Activation struct {
	Seq     int64 // the sequence the token belongs to
	Pos     int64 // its position in the sequence
	Phase   Phase
	Token   int32     // the token's id, -1 where unknown
	Experts []int32   // Shape.Layers rows of Shape.TopK ids, flat; a row that uses fewer is filled up with -1
	Weights []float32 // gate weights, as Experts; empty where unknown
}

// Row is the choice of one layer: the ids, and their weights or nil. The
// slices point into the activation. Entries of -1 are cut off.
func (a *Activation) Row(layer, topK int) ([]int32, []float32) {
	row := a.Experts[layer*topK : (layer+1)*topK]
	n := len(row)
	for n > 0 && row[n-1] < 0 {
		n--
	}
	if len(a.Weights) == 0 {
		return row[:n], nil
	}
	return row[:n], a.Weights[layer*topK : layer*topK+n]
}
