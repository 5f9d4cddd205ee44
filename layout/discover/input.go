package discover

import (
	"errors"

	"outrider/layout"
)

// ErrNoExperts: no tensor has a routed expert's name. ErrExperts: there are
// routed experts, but not complete records of equal make that fit what the model
// says of itself. Both arrive inside a *layout.FormatError.
var (
	ErrNoExperts = errors.New("no routed experts found")
	ErrExperts   = errors.New("expert tensors do not form records")
)

// Tensor is one entry of a checkpoint's tensor table.
type Tensor struct {
	Name   string
	Type   string  // as the checkpoint names it
	Dims   []int64 // fastest first; empty for a single number; not changed
	File   int     // index into Input.Files
	Offset int64   // of the first byte, from the start of the file
	Bytes  int64
	// Part counts the files that hold a share of the same tensor under the same
	// name, as tensor-parallel checkpoints do; 0 for all others.
	Part int
}

// Input is what a reader found in a checkpoint's files.
type Input struct {
	Format  string // "gguf", "safetensors"
	Files   []layout.CheckpointFile
	Tensors []Tensor
	Facts   Facts
}

// Facts is what a model says of itself beside its tensors. Zero means unknown.
type Facts struct {
	Name         string // the model's own
	Architecture string
	Experts      int // routed experts of a layer
	// OtherExperts follow the routed ones in the same tensors' numbering, but are
	// another kind (of images: Ernie 4.5 VL). They stay resident.
	OtherExperts int
	TopK         int
	TopKRemedy   string // what to do when TopK is unknown
	Blocks       int    // blocks of a forward pass: those from this number on predict further tokens
	Predict      int    // how many blocks predict further tokens
	Hidden       int    // numbers of the hidden state
	Routing      Routing
}

// Routing is what a model says of how its routers choose.
type Routing struct {
	layout.RouterRule        // Scoring may be empty: unknown; Scale 0 means 1
	Unreadable        string // why the routers cannot be applied, if they cannot
}

// Options are the caller's wishes. The zero value is what a runner needs.
type Options struct {
	// Predict lays out the experts of blocks that predict further tokens as well,
	// as layers after all others.
	Predict bool
	// TopK overrides what the model says; 0 does not.
	TopK int
}
