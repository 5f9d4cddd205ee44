package router

import "outrider/layout"

// matrices is the collection of a Matrix. Its places are filled from the first
// on. Not safe for concurrent use.
type matrices struct {
	shape    layout.Shape
	capacity int
	count    int
	// shares holds, for each layer and expert, that expert's share of the row in
	// every matrix: comparing a choice with all matrices reads them in a line.
	shares []float32 // [layer][expert][place]
	norms  []float32 // [layer][place], one over the row's length; 0 for an empty row
	owners []uint64  // by place, the history that wrote it
	// versions rise with each writing: of a place, and of all.
	versions []uint64
	version  uint64
}

func newMatrices(shape layout.Shape, capacity int) matrices {
	return matrices{shape: shape, capacity: capacity}
}

// open makes the memory, unless it is there; nothing else may be asked before.
func (m *matrices) open() {
	if m.shares != nil {
		return
	}
	m.shares = make([]float32, m.shape.Count()*m.capacity)
	m.norms = make([]float32, m.shape.Layers*m.capacity)
	m.owners = make([]uint64, m.capacity)
	m.versions = make([]uint64, m.capacity)
}

// expert is the share of one expert in every matrix.
func (m *matrices) expert(layer, expert int) []float32 {
	return m.shares[(layer*m.shape.Experts+expert)*m.capacity:][:m.capacity]
}

// norm is one over the length of a layer's row in every matrix.
func (m *matrices) norm(layer int) []float32 { return m.norms[layer*m.capacity:][:m.capacity] }

// place is where a new matrix goes: a free place, else the one given, else any.
func (m *matrices) place(similar int) int {
	switch {
	case m.count < m.capacity:
		m.count++
		return m.count - 1
	case similar >= 0:
		return similar
	}
	return int(m.version % uint64(m.capacity))
}

// write replaces a matrix by counts of [layer][expert].
func (m *matrices) write(place int, owner uint64, counts []float32) {
	experts := m.shape.Experts
	for l := range m.shape.Layers {
		row := counts[l*experts:][:experts]
		sum, square := float32(0), float32(0)
		for _, n := range row {
			sum += n
			square += n * n
		}
		scale, norm := float32(0), float32(0)
		if sum > 0 {
			scale, norm = 1/sum, sum/root(square)
		}
		for e, n := range row {
			m.expert(l, e)[place] = n * scale
		}
		m.norm(l)[place] = norm
	}
	m.version++
	m.versions[place] = m.version
	m.owners[place] = owner
}

// product is the product of a layer's row in one matrix with another row.
func (m *matrices) product(place, layer int, row []float32) (sum float32) {
	for e, x := range row {
		if x == 0 {
			continue // a jump to that expert costs more than the question
		}
		sum += x * m.expert(layer, e)[place]
	}
	return sum
}
