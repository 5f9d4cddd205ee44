package learned

import (
	"math"

	"outrider/router"
)

// folded is a layer as it is run. Centre and scale are part of the weights, columns
// without weight are left out, and units come in pairs.
type folded struct {
	columns  []int               // those that carry weight, with the two of the sets
	bias     [Horizons][]float32 // by unit, the skip's last
	sharp    []float32           // weight of the sharpness, likewise
	weights  []float32           // [unit][columns], the skip's last
	output   []float32           // by unit but the skip, a multiple of unitBlock
	before   []float32           // [experts][embedding]
	again    []float32           //
	targets  []float32           // [embedding][experts]
	unitSize int                 // len(columns), a multiple of columnBlock
}

// The kernel takes so many units and columns at a time.
const (
	unitBlock   = 2
	columnBlock = 4
)

func fold(d Dims, p *Parameters, l *Layer) folded {
	inputs, units := Inputs(), (d.Hidden+unitBlock-1)/unitBlock*unitBlock
	f := folded{
		columns: activeColumns(d, l), sharp: make([]float32, units+1), output: make([]float32, units),
		before: l.Before, again: l.Again, targets: transpose(l.Target, d.Embedding),
	}
	f.unitSize = len(f.columns)
	f.weights = make([]float32, (units+1)*f.unitSize)
	for h := range f.bias {
		f.bias[h] = make([]float32, units+1)
	}
	copy(f.output, l.Output)
	for unit := range d.Hidden {
		f.foldUnit(unit, l.Hidden[unit*inputs:][:inputs], p)
	}
	f.foldUnit(units, l.Skip, p)
	return f
}

// foldUnit takes centre and scale into the weights and biases of one unit.
func (f *folded) foldUnit(unit int, from []float32, p *Parameters) {
	fixed := router.FeatureColumns()
	var shift float64
	for i := range fixed + 1 {
		shift += float64(from[i]) * float64(p.Centre[i]) / float64(p.Scale[i])
	}
	f.sharp[unit] = from[fixed+inputSharpness] / p.Scale[fixed]
	for h := range f.bias {
		f.bias[h][unit] = float32(float64(from[fixed+inputHorizon+h]) - shift)
	}
	to := f.weights[unit*f.unitSize:][:f.unitSize]
	for at, column := range f.columns {
		switch {
		case at > 0 && column == f.columns[at-1]: // fills a block
		case column < fixed:
			to[at] = from[column] / p.Scale[column]
		default:
			to[at] = from[fixed+inputBefore+column-fixed]
		}
	}
}

// activeColumns lists the columns that any unit weighs, and those of the sets
// behind them. The last one is repeated to fill a block.
func activeColumns(d Dims, l *Layer) []int {
	inputs, fixed := Inputs(), router.FeatureColumns()
	var active []int
	for c := range fixed {
		weighed := l.Skip[c] != 0
		for unit := range d.Hidden {
			weighed = weighed || l.Hidden[unit*inputs+c] != 0
		}
		if weighed {
			active = append(active, c)
		}
	}
	active = append(active, fixed, fixed+1)
	for len(active)%columnBlock != 0 {
		active = append(active, fixed+1)
	}
	return active
}

// transpose turns [experts][embedding] around.
func transpose(from []float32, embedding int) []float32 {
	experts := len(from) / embedding
	to := make([]float32, len(from))
	for e := range experts {
		for k := range embedding {
			to[k*experts+e] = from[e*embedding+k]
		}
	}
	return to
}

// Scratch is memory for one forecast at a time.
type Scratch struct {
	experts int
	columns []float32 // [columns of router, before, again][experts]
	query   []float32 // [embedding]
	units   [unitBlock][]float32
}

// NewScratch makes what LogOdds works in.
func (m *Model) NewScratch() *Scratch {
	n := m.dims.Shape.Experts
	s := &Scratch{experts: n, columns: make([]float32, (router.FeatureColumns()+2)*n), query: make([]float32, m.dims.Embedding)}
	for i := range s.units {
		s.units[i] = make([]float32, n)
	}
	return s
}

// Columns is where LogOdds expects what router.Featured writes.
func (s *Scratch) Columns() []float32 { return s.columns[:router.FeatureColumns()*s.experts] }

// LogOdds runs the network over s.Columns: it writes the log odds that each expert
// of the layer is used. The layer and the experts of the view must exist, and dst have an
// entry an expert. It allocates nothing.
func (m *Model) LogOdds(layer int, v View, s *Scratch, dst []float32) {
	f := &m.layers[layer]
	fixed, n := router.FeatureColumns(), s.experts
	f.compare(f.before, v.Before, s.query, s.columns[fixed*n:][:n])
	f.compare(f.again, v.Again, s.query, s.columns[(fixed+1)*n:][:n])
	var sharpness float32
	for _, x := range s.columns[(fixed-1)*n:][:n] {
		sharpness += x
	}
	sharpness /= float32(n)

	bias, skip := f.bias[v.Horizon], len(f.output)
	start := func(unit int) float32 { return bias[unit] + f.sharp[unit]*sharpness }
	f.single(s.columns, f.weights[skip*f.unitSize:], start(skip), dst)
	for unit := 0; unit < skip; unit += unitBlock {
		a, b := s.units[0][:len(dst)], s.units[1][:len(dst)]
		f.pair(s.columns, unit, start(unit), start(unit+1), a, b)
		wa, wb := f.output[unit], f.output[unit+1]
		for e := range dst {
			dst[e] += wa*max(a[e], 0) + wb*max(b[e], 0)
		}
	}
}

// compare writes the mean embedding of a set times each expert's own; 0 for an
// empty set.
func (f *folded) compare(embeddings []float32, set []int32, query, dst []float32) {
	clear(query)
	clear(dst)
	if len(set) == 0 {
		return
	}
	for _, e := range set {
		for k, x := range embeddings[int(e)*len(query):][:len(query)] {
			query[k] += x
		}
	}
	n := len(dst)
	for k, q := range query {
		q /= float32(len(set))
		for e, x := range f.targets[k*n:][:n] {
			dst[e] += q * x
		}
	}
}

// single writes one unit's sum of all experts.
func (f *folded) single(columns, weights []float32, start float32, dst []float32) {
	n := len(dst)
	for e := range dst {
		dst[e] = start
	}
	for at := 0; at < f.unitSize; at += columnBlock {
		i := (*[columnBlock]int)(f.columns[at:])
		w := (*[columnBlock]float32)(weights[at:])
		x0, x1, x2, x3 := columns[i[0]*n:][:n], columns[i[1]*n:][:n], columns[i[2]*n:][:n], columns[i[3]*n:][:n]
		for e := range dst {
			dst[e] += w[0]*x0[e] + w[1]*x1[e] + w[2]*x2[e] + w[3]*x3[e]
		}
	}
}

// pair writes two units' sums: each column is loaded once for both.
func (f *folded) pair(columns []float32, unit int, startA, startB float32, a, b []float32) {
	n := len(a)
	b = b[:n]
	for e := range a {
		a[e], b[e] = startA, startB
	}
	for at := 0; at < f.unitSize; at += columnBlock {
		i := (*[columnBlock]int)(f.columns[at:])
		u := (*[columnBlock]float32)(f.weights[unit*f.unitSize+at:])
		v := (*[columnBlock]float32)(f.weights[(unit+1)*f.unitSize+at:])
		u0, u1, u2, u3 := u[0], u[1], u[2], u[3]
		v0, v1, v2, v3 := v[0], v[1], v[2], v[3]
		x0, x1, x2, x3 := columns[i[0]*n:][:n], columns[i[1]*n:][:n], columns[i[2]*n:][:n], columns[i[3]*n:][:n]
		for e := range a {
			p, q, r, s := x0[e], x1[e], x2[e], x3[e]
			a[e] += u0*p + u1*q + u2*r + u3*s
			b[e] += v0*p + v1*q + v2*r + v3*s
		}
	}
}

// sigmoid turns log odds into a probability.
func sigmoid(z float32) float32 { return float32(1 / (1 + math.Exp(-float64(z)))) }
