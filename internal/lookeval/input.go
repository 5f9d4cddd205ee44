package lookeval

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// ErrInput: the files are not those of the trace.
var ErrInput = errors.New("files do not belong to the trace")

// Input is what is replayed: a routing trace, and for each of its tokens the
// hidden state that each layer's router saw.
type Input struct {
	Trace   *trace.Trace
	Routers []*layout.RouterMatrix // one a layer
	Rule    layout.RouterRule
	Width   int
	hidden  []byte // float16, [token][layer][width], little-endian
}

const (
	// maxWidth is more than any model's hidden state has.
	maxWidth = 1 << 16
	// checked tokens prove that the files belong to the trace; float16 states and
	// other arithmetic change few choices.
	checked   = 64
	leastTrue = 0.9
)

// Open reads the hidden states and the router matrices that belong to a trace,
// as files of plain numbers: states as float16 [token][layer][width], matrices as
// float32 [layer][expert][width], whatever follows them ignored. The trace must be
// the whole one: the width follows from the size of the first file. Both are read
// whole. Routers choose by softmax.
//
// It fails with ErrInput where sizes do not fit, and where the routers, given the
// states of the first tokens, do not choose what the trace says.
func Open(t *trace.Trace, hidden, gates string) (*Input, error) {
	shape := t.Header.Shape
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("lookeval: %w", err)
	}
	states, err := readStates(hidden, t.Len(), shape.Layers)
	if err != nil {
		return nil, fmt.Errorf("lookeval: hidden states: %w", err)
	}
	in := &Input{Trace: t, Width: len(states) / (2 * t.Len() * shape.Layers), Rule: layout.RouterRule{Scoring: layout.ScoreSoftmax}, hidden: states}
	if in.Routers, err = readRouters(gates, shape, in.Width); err != nil {
		return nil, fmt.Errorf("lookeval: router matrices: %w", err)
	}
	if got := in.agreement(); got < leastTrue {
		return nil, fmt.Errorf("lookeval: %w: the routers of %s choose, by the states of %s, %.0f %% of the experts that the trace says, want at least %.0f %%",
			ErrInput, gates, hidden, 100*got, 100*leastTrue)
	}
	return in, nil
}

// openPlain opens a regular file and tells its size.
func openPlain(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, 0, err
	case !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%w: %s is no file of numbers", ErrInput, path)
	}
	f, err := os.Open(path)
	return f, info.Size(), err
}

func readStates(path string, tokens, layers int) ([]byte, error) {
	f, size, err := openPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	row := 2 * int64(tokens) * int64(layers)
	if row == 0 || size == 0 || size%row != 0 || size/row > maxWidth {
		return nil, fmt.Errorf("%w: %s has %d bytes, which are not the float16 states of %d tokens x %d layers", ErrInput, path, size, tokens, layers)
	}
	states := make([]byte, size)
	if _, err := io.ReadFull(f, states); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return states, nil
}

func readRouters(path string, shape layout.Shape, width int) ([]*layout.RouterMatrix, error) {
	f, size, err := openPlain(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	matrix := int64(shape.Experts) * int64(width)
	if need := 4 * matrix * int64(shape.Layers); size < need {
		return nil, fmt.Errorf("%w: %s has %d bytes, %d layers of %d x %d float32 need %d", ErrInput, path, size, shape.Layers, shape.Experts, width, need)
	}
	routers, raw := make([]*layout.RouterMatrix, shape.Layers), make([]byte, 4*matrix)
	for l := range routers {
		if _, err := io.ReadFull(f, raw); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		m := &layout.RouterMatrix{Weight: make([]float32, matrix)}
		for i := range m.Weight {
			m.Weight[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
		routers[l] = m
	}
	return routers, nil
}

// agreement is the share of the experts of the first tokens that each layer's own
// router chooses by its own state.
func (in *Input) agreement() float64 {
	shape, guesser := in.Trace.Header.Shape, router.NewGuesser(in.Trace.Header.Shape, in.Rule)
	hidden, score := make([]float32, in.Width), make([]float32, shape.Experts)
	n, sum := min(in.Trace.Len(), checked), 0.0
	for i := range n {
		for l := range shape.Layers {
			in.state(i, l, hidden)
			in.guess(guesser, l, hidden, score)
			used, _ := in.Trace.Row(i, l)
			sum += router.Found(score, used, shape.TopK)
		}
	}
	return sum / float64(n*shape.Layers)
}

// guess writes how likely a layer's router chooses each expert by a state; 0 for
// those that it cannot choose.
func (in *Input) guess(g *router.Guesser, layer int, hidden, score []float32) {
	clear(score)
	ids, p := g.Guess(in.Routers[layer], hidden)
	for at, e := range ids {
		score[e] = p[at]
	}
}

// state widens the hidden state that a layer's router saw of a token.
func (in *Input) state(token, layer int, dst []float32) {
	raw := in.hidden[2*in.Width*(token*in.Trace.Header.Shape.Layers+layer):]
	for i := range dst {
		dst[i] = half(binary.LittleEndian.Uint16(raw[2*i:]))
	}
}

// half widens an IEEE 754 half-precision number.
func half(h uint16) float32 {
	sign, exponent, fraction := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h>>15 == 1 {
		sign = -1
	}
	switch exponent {
	case 0:
		return float32(sign * math.Ldexp(fraction, -24))
	case 0x1f:
		if fraction != 0 {
			return float32(math.NaN())
		}
		return float32(math.Inf(int(sign)))
	}
	return float32(sign * math.Ldexp(1024+fraction, exponent-25))
}
