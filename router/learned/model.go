package learned

import (
	"fmt"
	"math"

	"outrider/layout"
	"outrider/router"
)

// Horizon is how much of the pass in question is known.
type Horizon int

// The horizons, the farthest first.
const (
	Keep  Horizon = iota // nothing
	Ahead                // its token or a layer, but not the layer before
	Near                 // the layer before

	Horizons int = iota
)

// String is the horizon's name.
func (h Horizon) String() string { return [...]string{"keep", "ahead", "near"}[h] }

// The inputs of the network beyond the columns, counted from their end.
const (
	inputSharpness = iota
	inputHorizon
	inputBefore = inputHorizon + int(Near) + 1
	inputAgain  = inputBefore + 1
	extraInputs = inputAgain + 1
)

// Dims are the sizes of a network.
type Dims struct {
	Shape     layout.Shape
	Embedding int // of a set or an expert, 1 to MaxEmbedding
	Hidden    int // units of the hidden layer, 1 to MaxHidden
}

// The largest sizes of a network.
const (
	MaxEmbedding = 64
	MaxHidden    = 256
)

const (
	// maxNumbers bounds a network, 64 MiB of parameters. The largest models
	// known need a twentieth.
	maxNumbers = 1 << 24
	// maxSize and minScale keep every sum that the network can make finite.
	maxSize  = 1e6
	minScale = 1e-6
)

// Inputs is how many inputs the network has for an expert.
func Inputs() int { return router.FeatureColumns() + extraInputs }

// Validate reports the first dimension that a network cannot have.
func (d Dims) Validate() error {
	if err := d.Shape.Validate(); err != nil {
		return err
	}
	switch {
	case d.Embedding < 1 || d.Embedding > MaxEmbedding:
		return fmt.Errorf("embeddings have %d dimensions, want 1 to %d", d.Embedding, MaxEmbedding)
	case d.Hidden < 1 || d.Hidden > MaxHidden:
		return fmt.Errorf("the hidden layer has %d units, want 1 to %d", d.Hidden, MaxHidden)
	case d.numbers() > maxNumbers:
		return fmt.Errorf("the network has %d parameters, want at most %d", d.numbers(), maxNumbers)
	}
	return nil
}

// Numbers is how many parameters a network of valid dimensions has.
func (d Dims) Numbers() int { return int(d.numbers()) }

func (d Dims) numbers() int64 {
	layer := (d.Hidden+1)*Inputs() + d.Hidden + 3*d.Shape.Experts*d.Embedding
	return 2*int64(router.FeatureColumns()+1) + int64(d.Shape.Layers)*int64(layer)
}

// Parameters are what training finds.
type Parameters struct {
	Centre, Scale []float32 // columns and sharpness: subtracted, then divided by
	Layers        []Layer
}

// Layer holds the weights of one layer. Inputs are in the order of the package's
// comment.
type Layer struct {
	Hidden                []float32 // [hidden][inputs]
	Skip                  []float32 // [inputs]
	Output                []float32 // [hidden]
	Before, Again, Target []float32 // [experts][embedding]
}

// parts lists a layer's weights in the order of the file, with their lengths.
func (l *Layer) parts(d Dims) []part {
	set := d.Shape.Experts * d.Embedding
	return []part{
		{"hidden", &l.Hidden, d.Hidden * Inputs()}, {"skip", &l.Skip, Inputs()}, {"output", &l.Output, d.Hidden},
		{"before", &l.Before, set}, {"again", &l.Again, set}, {"target", &l.Target, set},
	}
}

type part struct {
	name    string
	numbers *[]float32
	length  int
}

// Model is a trained network for the experts of one model. It does not change
// and may be used from several goroutines.
type Model struct {
	name       string
	dims       Dims
	parameters Parameters
	layers     []folded
}

// NewModel makes a network of parameters, which it keeps and which must not change.
// name is that of the model it is for. It fails with ErrParameters where lengths do
// not fit or a number is out of range.
func NewModel(name string, d Dims, p Parameters) (*Model, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("learned: %w: %w", ErrParameters, err)
	}
	if len(name) > maxName {
		return nil, fmt.Errorf("learned: %w: the model's name has %d bytes, want at most %d", ErrParameters, len(name), maxName)
	}
	if err := p.validate(d); err != nil {
		return nil, fmt.Errorf("learned: %w: %w", ErrParameters, err)
	}
	m := &Model{name: name, dims: d, parameters: p, layers: make([]folded, d.Shape.Layers)}
	for l := range m.layers {
		m.layers[l] = fold(d, &p, &p.Layers[l])
	}
	return m, nil
}

func (p *Parameters) validate(d Dims) error {
	spread := router.FeatureColumns() + 1
	if len(p.Centre) != spread || len(p.Scale) != spread || len(p.Layers) != d.Shape.Layers {
		return fmt.Errorf("%d centres, %d scales and %d layers, want %d, %d and %d", len(p.Centre), len(p.Scale), len(p.Layers), spread, spread, d.Shape.Layers)
	}
	if err := inRange("centre", p.Centre); err != nil {
		return err
	}
	if err := inRange("scale", p.Scale); err != nil {
		return err
	}
	for i, s := range p.Scale {
		if s < minScale {
			return fmt.Errorf("scale %d is %v, want at least %v", i, s, minScale)
		}
	}
	for l := range p.Layers {
		for _, part := range p.Layers[l].parts(d) {
			if len(*part.numbers) != part.length {
				return fmt.Errorf("layer %d: %s has %d numbers, want %d", l, part.name, len(*part.numbers), part.length)
			}
			if err := inRange(part.name, *part.numbers); err != nil {
				return fmt.Errorf("layer %d: %w", l, err)
			}
		}
	}
	return nil
}

// inRange refuses what is not finite or too large.
func inRange(name string, numbers []float32) error {
	for i, x := range numbers {
		if !(math.Abs(float64(x)) <= maxSize) {
			return fmt.Errorf("%s %d is %v, want a number of at most %v in size", name, i, x, float64(maxSize))
		}
	}
	return nil
}

// Name is that of the model the network is for, as its traces told.
func (m *Model) Name() string { return m.name }

// Dims are the network's sizes.
func (m *Model) Dims() Dims { return m.dims }

// Parameters are the network's own: do not change them.
func (m *Model) Parameters() Parameters { return m.parameters }
