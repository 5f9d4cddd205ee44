package layout

// Checkpoint is what layout/checkpoint found in a model's files: where each
// routed expert's tensors lie. It is plain data; opening files is up to whoever
// uses it (Build, OpenInPlace).
type Checkpoint struct {
	Format       string // "gguf", "safetensors"
	Name         string // the model's own name
	Architecture string // as the checkpoint says: "qwen3moe"
	Shape        Shape
	Files        []CheckpointFile  // shards, in order
	Layers       []CheckpointLayer // one for each MoE layer, in execution order
	RestBytes    int64             // tensor bytes that are not routed experts: they stay resident
	// Family is a guess at the model's kind by its names ("qwen3-moe"), for people
	// only: nothing depends on it. Resident says what RestBytes are made of, and what
	// was left out.
	Family   string
	Resident []ResidentGroup
	// Notes are sentences for people about what is odd and yet no fault: files of the
	// folder that were left out, an index whose total is wrong.
	Notes []string
	// Routers says where the router matrices lie; nil where there are none that can
	// be read, and NoRouters says why.
	Routers   *CheckpointRouters
	NoRouters string
}

// ResidentGroup sums up tensors that are not laid out: "routers", "shared experts",
// "chunk experts", "prediction blocks", "other" and, in few models, other kinds
// (layout/discover has them all).
type ResidentGroup struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
	LeftOut bool   `json:"left_out,omitempty"` // no part of a forward pass: not in RestBytes
}

// CheckpointFile is one shard.
type CheckpointFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Header is the SHA-256, in hex, of everything before the tensor data.
	Header string `json:"header"`
}

// CheckpointLayer holds the expert tensors of one layer in the order the layer
// consumes them.
type CheckpointLayer struct {
	Tensors []ExpertTensor
}

// ExpertTensor is one projection of all experts of a layer. Stacked in one
// tensor, expert e lies at Offset + e*Projection.Bytes of File; otherwise Each
// lists one span an expert.
type ExpertTensor struct {
	Projection
	// Source is the tensor's name in the checkpoint. Where each expert has its own
	// tensor, "{expert}" stands for its number.
	Source string
	// SourceDims are the dimensions of the whole tensor in the checkpoint, fastest
	// first: with the experts of a stacked one, of one expert otherwise. They may be
	// cut differently than Dims.
	SourceDims []int64
	File       int
	Offset     int64
	Each       []Span // nil when stacked
}

// Span is a range of one of the checkpoint's files.
type Span struct {
	File          int
	Offset, Bytes int64
}

// Span is where expert e's part of the tensor lies.
func (t *ExpertTensor) Span(e int) Span {
	if t.Each != nil {
		return t.Each[e]
	}
	return Span{File: t.File, Offset: t.Offset + int64(e)*t.Bytes, Bytes: t.Bytes}
}
