package synthckpt

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

// The formats that families are written in.
const (
	GGUF        = "gguf"
	Safetensors = "safetensors"
)

// ErrOptions is returned for a family that is not known, and for numbers that it
// cannot have.
var ErrOptions = errors.New("no such checkpoint")

// Info describes one form of a family.
type Info struct {
	Name   string `json:"name"`   // "qwen3-moe", "deepseek-v3-fp8"
	Format string `json:"format"` // GGUF or Safetensors
	Models string `json:"models"` // models that are published so, and what is special
}

// Options say which checkpoint to make. Zero values take the default.
type Options struct {
	Family  string
	Format  string // "" takes GGUF if the family has that form, else Safetensors
	Layers  int    // blocks of the model, without those that predict; 0 takes 4
	Experts int    // of a layer; 0 takes 8
	TopK    int    // chosen for a token; 0 takes 2
	Hidden  int    // width of the model; 0 takes 64; rounded up to the family's block sizes
	FFN     int    // width of an expert; 0 takes 96; rounded up likewise
	Seed    uint64
}

// limits of Options: sizes stay well within what the formats can say.
const (
	maxLayers = 1000
	maxWidth  = 1 << 20
)

// Model is a checkpoint before it is written: what it says, and its tensors.
type Model struct {
	Info
	Architecture string
	Shape        layout.Shape // MoE layers, without blocks that predict
	Hidden, FFN  int          // as rounded
	Settings     []Setting    // metadata, or config.json, in order
	Tensors      []Tensor     // in the order of the file

	seed uint64
	// stem begins the names of safetensors files, configName is that of the file
	// of settings beside them.
	stem, configName string
}

// Setting is one value of metadata: string, bool, float64, int64, nil, or a
// []any of them. Of config.json, dots in Key nest objects.
type Setting struct {
	Key   string
	Value any
}

// Tensor is one tensor of a Model.
type Tensor struct {
	Name string
	Type string  // as the format calls it: "Q4_K", "BF16"
	Dims []int64 // in the format's order
	// Bytes is the size of the data.
	Bytes int64
	// Routed: it belongs to experts that a router chooses from. Block is the block
	// of the model that it is in, -1 for none; Predict: of a block that predicts.
	Routed  bool
	Block   int
	Predict bool
	// Part is the tensor-parallel part that it is, from 1; 0 where it is whole.
	Part int

	rule rule
}

// RoutedBytes is the size of all routed experts, also of those in blocks that predict.
func (m *Model) RoutedBytes() (n int64) {
	for i := range m.Tensors {
		if m.Tensors[i].Routed {
			n += m.Tensors[i].Bytes
		}
	}
	return n
}

// Families lists all forms of all families, by name and format.
func Families() ([]Info, error) {
	lib, err := load(tables)
	if err != nil {
		return nil, err
	}
	out := make([]Info, len(lib.families))
	for i := range lib.families {
		out[i] = lib.families[i].Info
	}
	slices.SortFunc(out, func(a, b Info) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Format, b.Format)
	})
	return out, nil
}

// Plan works out a checkpoint: names and sizes, no bytes. An error that wraps
// ErrOptions says what the family cannot have.
func Plan(opts Options) (*Model, error) {
	lib, err := load(tables)
	if err != nil {
		return nil, err
	}
	return lib.plan(opts)
}

func (lib *library) plan(opts Options) (*Model, error) {
	opts = opts.withDefaults()
	f := lib.find(opts.Family, opts.Format)
	if f == nil {
		return nil, fmt.Errorf("synthckpt: %w: family %q%s is not known", ErrOptions, opts.Family, inFormat(opts.Format))
	}
	if opts.Format == "" {
		if g := lib.find(opts.Family, GGUF); g != nil {
			f = g
		}
	}
	if err := opts.check(); err != nil {
		return nil, err
	}
	b, err := newBuilder(lib, f, opts)
	if err != nil {
		return nil, err
	}
	return b.model()
}

func inFormat(format string) string {
	if format == "" {
		return ""
	}
	return " as " + format
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *int
		value int
	}{{&o.Layers, 4}, {&o.Experts, 8}, {&o.TopK, 2}, {&o.Hidden, 64}, {&o.FFN, 96}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return o
}

func (o Options) check() error {
	switch {
	case o.Layers < 1 || o.Layers > maxLayers:
		return fmt.Errorf("synthckpt: %w: %d layers, want 1 to %d", ErrOptions, o.Layers, maxLayers)
	case o.Experts < 2 || o.Experts > layout.MaxExperts:
		return fmt.Errorf("synthckpt: %w: %d experts, want 2 to %d", ErrOptions, o.Experts, layout.MaxExperts)
	case o.TopK < 1 || o.TopK > o.Experts:
		return fmt.Errorf("synthckpt: %w: %d of %d experts chosen, want 1 to all", ErrOptions, o.TopK, o.Experts)
	case o.Hidden < 1 || o.Hidden > maxWidth || o.FFN < 1 || o.FFN > maxWidth:
		return fmt.Errorf("synthckpt: %w: widths %d and %d, want 1 to %d", ErrOptions, o.Hidden, o.FFN, maxWidth)
	}
	return nil
}

// sizeOf is the size of a tensor of this format's type and dimensions.
func sizeOf(format, typ string, dims []int64) (int64, error) {
	if format == GGUF {
		t, ok := gguf.ParseType(typ)
		if !ok {
			return 0, fmt.Errorf("type %q is not known", typ)
		}
		return t.Bytes(dims)
	}
	bits := safetensors.DTypeBits(typ)
	if bits == 0 {
		return 0, fmt.Errorf("dtype %q is not known", typ)
	}
	n := int64(bits)
	for _, d := range dims {
		if d < 1 || n > maxSize*8/d {
			return 0, fmt.Errorf("dimensions %v", dims)
		}
		n *= d
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("%s %v is no whole number of bytes", typ, dims)
	}
	return n / 8, nil
}
