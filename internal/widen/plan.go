package widen

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"outrider/layout"
	"outrider/layout/gguf"
)

const (
	// maxFactor is the largest of either factor.
	maxFactor = 1 << 10
	// maxSide is the most that a side may have; no model comes near. It bounds a row.
	maxSide = 1 << 22
	// maxBytes keeps sums of sizes in range.
	maxBytes = 1 << 60
)

// Options says how much larger a model becomes.
type Options struct {
	Width int // factor of the residual stream: a power of two, 1 to 1024
	FFN   int // factor of the inner widths of experts and dense blocks, likewise
}

// Plan is an enlargement, worked out and checked, of which nothing is written yet.
type Plan struct {
	Width, FFN   int
	Architecture string
	HeadsToo     bool  // attention heads are repeated with the stream
	Untied       bool  // the output is the embedding's, and gets a tensor of its own
	StreamWidth  int64 // of the enlarged model, in elements
	ExpertWidth  int64 // inner width of its routed experts, the largest
	Blocks       int   // with routed experts
	Experts      int   // routed, of a block
	ExpertBytes  int64 // of one of its routed experts, the largest
	SourceBytes  int64 // of all tensors of the small model
	TensorBytes  int64 // of all its own tensors, with padding
	HeaderBytes  int64 // at most

	fsys        layout.FS
	file        *gguf.File
	align       uint32
	streamWidth int64
	settings    []setting
	tensors     []tensor
}

// tensor is a tensor of the enlarged model.
type tensor struct {
	name   string
	source gguf.Tensor
	dims   []int64
	cols   axis
	rows   axis
	shift  uint // log2 of what columns are divided by
}

// axis says how a dimension grows: its parts one after another, each repeated.
type axis struct {
	parts  int
	repeat int64
}

// New plans the enlargement of the model at path: a GGUF file, or any shard of a
// split one. Only headers are read. A nil fsys means layout.OS(). Errors are
// ErrFactor, ErrModel, and those of gguf.Open.
func New(fsys layout.FS, path string, o Options) (*Plan, error) {
	if err := errors.Join(checkFactor("width", o.Width), checkFactor("ffn", o.FFN)); err != nil {
		return nil, err
	}
	if fsys == nil {
		fsys = layout.OS()
	}
	file, err := gguf.Open(fsys, path)
	if err != nil {
		return nil, fmt.Errorf("widen: %w", err)
	}
	p := &Plan{Width: o.Width, FFN: o.FFN, Architecture: file.Architecture(), fsys: fsys, file: file}
	if err := p.plan(); err != nil {
		return nil, fmt.Errorf("widen: %s: %w", path, err)
	}
	return p, nil
}

func checkFactor(name string, factor int) error {
	if factor < 1 || factor > maxFactor || factor&(factor-1) != 0 {
		return fmt.Errorf("widen: %w: %s is %d, want a power of two from 1 to %d, since weights are divided by it", ErrFactor, name, factor, maxFactor)
	}
	return nil
}

func (p *Plan) plan() error {
	a, ok := findArchitecture(p.Architecture)
	if !ok {
		return refuse("the architecture is %q, those that can be are %s", p.Architecture, strings.Join(Architectures(), ", "))
	}
	if p.file.BigEndian() {
		return refuse("its numbers are big-endian: convert it to little-endian first")
	}
	p.HeadsToo = a.wholeHeads && p.Width > 1
	var err error
	if p.streamWidth, err = p.required("embedding_length"); err != nil {
		return err
	}
	experts, err := p.required("expert_count")
	if err != nil {
		return err
	}
	p.Experts = int(experts)
	p.StreamWidth = p.streamWidth * int64(p.Width)
	if err := p.metadata(); err != nil {
		return err
	}
	if err := p.planTensors(); err != nil {
		return err
	}
	return p.count()
}

// factor is how much larger a side becomes.
func (p *Plan) factor(s side) int64 {
	switch {
	case s == stream, s == heads && p.HeadsToo:
		return int64(p.Width)
	case s == inner:
		return int64(p.FFN)
	}
	return 1
}

// count adds up what the plan comes to.
func (p *Plan) count() error {
	align := int64(max(p.align, 32))
	experts := map[int]int64{} // bytes of a block's routed experts
	for _, t := range p.tensors {
		size, err := t.source.Type.Bytes(t.dims)
		if err != nil {
			return refuse("tensor %s: %v", t.source.Name, err)
		}
		if size > maxBytes-p.TensorBytes {
			return refuse("its tensors would take more than %d bytes", int64(maxBytes))
		}
		p.TensorBytes += (size + align - 1) / align * align
		if k, _ := parseName(t.name); k.routed {
			experts[k.block] += size
		}
	}
	for _, t := range p.file.Tensors() {
		p.SourceBytes += t.Bytes
	}
	for _, size := range experts {
		p.ExpertBytes = max(p.ExpertBytes, size/int64(p.Experts))
	}
	if p.Blocks = len(experts); p.Blocks == 0 {
		return refuse("it has no tensors of routed experts")
	}
	p.boundHeader()
	return nil
}

// boundHeader is what the source's headers take, and room for what is added.
func (p *Plan) boundHeader() {
	const added = 64 << 10
	p.HeaderBytes = added
	for i, s := range p.file.Shards() {
		end := s.Size
		for _, t := range p.file.Tensors() {
			if t.Shard == i {
				end = min(end, t.Offset)
			}
		}
		p.HeaderBytes += end
	}
}

// log2 of a power of two.
func log2(n int64) uint { return uint(bits.TrailingZeros64(uint64(n))) }
