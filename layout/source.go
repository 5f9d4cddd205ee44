package layout

// Source says where the bytes of every expert lie, and holds the files open:
// a Store, or a checkpoint opened in place. Safe for concurrent use.
type Source interface {
	Shape() Shape
	// Lanes are the open files, one a device for a store. Read.Lane counts them.
	Lanes() []Lane
	// Record describes the projections of a layer's experts, in the order the
	// layer consumes them. The slice is shared: do not change it.
	Record(layer int) []Projection
	// Locate writes into p what must be read for one expert, reusing p's slices.
	Locate(id ExpertID, p *Placement) error
	// SlotBytes is the largest Placement.Bytes of a layer's experts.
	SlotBytes(layer int) int64
	Close() error
}

// Lane is one device of a source: an open file, and where the store has copies a
// second one beside it.
type Lane struct {
	Path string
	File File
	// Copies, nil if there are none, holds second copies of what lies on other
	// lanes: see Read.Copy. CopiesPath is its path.
	Copies     File
	CopiesPath string
}

// Projection is one tensor of an expert.
type Projection struct {
	Name  string  `json:"name"`  // "gate", "up", "down", "gate_up"; side tensors "gate.bias" …
	Type  string  `json:"type"`  // as the checkpoint names it: "Q8_0", "F16", "BF16" …
	Dims  []int64 `json:"dims"`  // of one expert, fastest first, as GGUF lists them: [columns, rows]
	Bytes int64   `json:"bytes"` // of one expert
	// Fused says how the rows (the columns, if Transposed) of a "gate_up" hold both;
	// empty for every other projection.
	Fused Fusion `json:"fused,omitempty"`
	// Transposed: the columns are the projection's outputs and the rows its inputs,
	// the other way round than usual.
	Transposed bool `json:"transposed,omitempty"`
}

// Fusion is an order of gate and up in one tensor.
type Fusion string

// The orders that published models have.
const (
	GateFirst   Fusion = "gate-first"  // all of gate, then all of up
	UpFirst     Fusion = "up-first"    // all of up, then all of gate
	Interleaved Fusion = "interleaved" // gate, up, gate, up, …
)

// Placement is what must be read for one expert, and where its tensors then
// lie in the slot that received it.
type Placement struct {
	Bytes int64  // slot bytes needed, a multiple of 4096
	Reads []Read // in record order
	Parts []Part // one for each projection of Source.Record
}

// Read is one contiguous range of one lane. Offset, Bytes and At keep the
// lane's alignment (File.Direct), so that the range lands in the slot without
// a copy: slot[At:At+Bytes].
type Read struct {
	Lane   int
	Offset int64
	Bytes  int64
	At     int64
	// Need is how many of Bytes must arrive: less than Bytes only where the
	// aligned range reaches beyond the end of the file.
	Need int64
	Copy Copy // where the range lies a second time; the zero value: nowhere
}

// Copy is a second place of a Read, always on another lane: Bytes from Offset of
// that lane's Copies, of which the Need bytes that matter are the same. It keeps
// the alignment of that file.
type Copy struct {
	Ok     bool
	Lane   int
	Offset int64
}

// Part is where one projection lies in the slot.
type Part struct {
	At, Bytes int64
	Sum       uint32 // CRC-32C of the bytes, if Summed
	Summed    bool   // false in place: a checkpoint has no checksums
}
