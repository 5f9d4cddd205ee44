package router

import (
	"math"
	"sync"

	"outrider/layout"
)

// Shape is the shape of the model that is forecast.
func (m *Matrix) Shape() layout.Shape { return m.shape }

// maxSavedMatrices bounds the collection: each history compares with all of it.
const maxSavedMatrices = 1 << 14

func (o *MatrixOptions) visit(s *State) {
	s.Int(&o.Capacity, 1, maxSavedMatrices)
	s.Int(&o.Window, 1, maxMatrixWindow)
}

// VisitState visits the collection: first whose matrices it holds, then each
// layer. A matrix that is replaced meanwhile may be saved with rows of both.
func (m *Matrix) VisitState(s *State) {
	visitOptions(s, MatrixOptions{Capacity: m.past.capacity, Window: m.window}, (*MatrixOptions).visit)
	var lock sync.Locker = &m.mu
	if !s.Loading() {
		lock = m.mu.RLocker()
	}
	count := 0
	s.Section("collection", lock, func() {
		s.Revision(1)
		count = m.visitOwners(s)
	})
	if count == 0 {
		return
	}
	for l := range m.shape.Layers {
		s.Section(layerPart(l), lock, func() { m.visitLayer(s, l, count) })
	}
}

// visitOwners visits all but the rows, and returns the number of matrices.
func (m *Matrix) visitOwners(s *State) int {
	count := m.past.count
	s.Int(&count, 0, m.past.capacity)
	if !s.Has(count > 0, 16*count) {
		return 0
	}
	// Ids and versions only rise, and never by as much as they may be here.
	numbers := [2]uint64{m.last, m.past.version}
	s.Uint64s(numbers[:], 0, math.MaxInt64)
	owners, versions := make([]uint64, count), make([]uint64, count)
	copy(owners, m.past.owners)
	copy(versions, m.past.versions)
	s.Uint64s(owners, 0, numbers[0])
	s.Uint64s(versions, 1, numbers[1])
	if s.err != nil || !s.Loading() {
		return count
	}
	m.past.open()
	copy(m.past.owners, owners)
	copy(m.past.versions, versions)
	m.last, m.past.version, m.past.count = numbers[0], numbers[1], count
	return count
}

// visitLayer visits a layer of the first count matrices.
func (m *Matrix) visitLayer(s *State, layer, count int) {
	for e := range m.shape.Experts {
		s.Floats(m.past.expert(layer, e)[:count], 0, countSlack)
	}
	s.Floats(m.past.norm(layer)[:count], 0, maxCount)
}
