package lookeval

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"outrider/layout"
	"outrider/trace"
)

// Input is what is replayed: a routing trace, and for each of its tokens the
// hidden state that each layer's router saw.
type Input struct {
	Trace   *trace.Trace
	Routers []*layout.RouterMatrix // one a layer
	Rule    layout.RouterRule
	Width   int
	hidden  []byte // float16, [token][layer][width], little-endian
}

// Open reads the hidden states and the router matrices that belong to a trace,
// as files of plain numbers: states as float16 [token][layer][width], matrices as
// float32 [layer][expert][width], whatever follows them ignored. The width
// follows from the size of the first. Both are read whole. Routers choose by
// softmax.
func Open(t *trace.Trace, hidden, gates string) (*Input, error) {
	shape := t.Header.Shape
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("lookeval: %w", err)
	}
	states, err := os.ReadFile(hidden)
	if err != nil {
		return nil, fmt.Errorf("lookeval: %w", err)
	}
	rows := t.Len() * shape.Layers
	if rows == 0 || len(states) == 0 || len(states)%(2*rows) != 0 {
		return nil, fmt.Errorf("lookeval: %s has %d bytes, which are not the float16 states of %d tokens x %d layers", hidden, len(states), t.Len(), shape.Layers)
	}
	in := &Input{Trace: t, Width: len(states) / (2 * rows), Rule: layout.RouterRule{Scoring: layout.ScoreSoftmax}, hidden: states}
	numbers, err := os.ReadFile(gates)
	if err != nil {
		return nil, fmt.Errorf("lookeval: %w", err)
	}
	matrix := shape.Experts * in.Width
	if len(numbers) < 4*matrix*shape.Layers {
		return nil, fmt.Errorf("lookeval: %s has %d bytes, %d layers of %d x %d float32 need %d", gates, len(numbers), shape.Layers, shape.Experts, in.Width, 4*matrix*shape.Layers)
	}
	for range shape.Layers {
		m := &layout.RouterMatrix{Weight: make([]float32, matrix)}
		for i := range m.Weight {
			m.Weight[i] = math.Float32frombits(binary.LittleEndian.Uint32(numbers[4*i:]))
		}
		in.Routers = append(in.Routers, m)
		numbers = numbers[4*matrix:]
	}
	return in, nil
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
