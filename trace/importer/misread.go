package importer

import "math"

// misread finds passes that do not hold choices, but lists in which each expert
// stands once. Of two ways to get there, one is a fault: the router's choice is a view of
// the first k columns of sorted lists of all experts, a list for each token, and
// whoever reads the view as if it were contiguous gets the first token's list,
// then the next one's. The other is a warm-up, in which all experts are used.
type misread struct {
	experts, topK  int
	passes, tokens int64
	seen           []bool
}

// chanceBits: what happens by chance less than once in 2^30 passes is no chance.
const chanceBits = 30

// pass reports whether the pass holds such lists, and counts it then. It has to be
// very unlikely for real choices, or look the same in a file where one was.
func (m *misread) pass(b *block) bool {
	tokens := b.rows(0)
	if tokens < 2 {
		return false
	}
	bits, n := 0.0, min(tokens*m.topK, m.experts)
	for l := range b.ids {
		if b.ids[l][0] < 0 {
			continue // the last layer, with the last token's row only
		}
		if !m.eachOnce(b.ids[l][:n]) {
			return false
		}
		bits += m.surprise(tokens)
	}
	if bits < chanceBits && m.passes == 0 {
		return false
	}
	m.passes++
	m.tokens += int64(tokens)
	return true
}

func (m *misread) eachOnce(ids []int32) bool {
	if m.seen == nil {
		m.seen = make([]bool, m.experts)
	}
	clear(m.seen)
	for _, id := range ids {
		if m.seen[id] {
			return false
		}
		m.seen[id] = true
	}
	return true
}

// surprise is how unlikely it is, in bits, that tokens share no expert in a layer
// if all experts are equally likely. Uneven use makes it less likely still.
func (m *misread) surprise(tokens int) (bits float64) {
	for used := m.topK; used < tokens*m.topK; used += m.topK {
		for i := range m.topK {
			free := m.experts - used - i
			if free < 1 {
				return bits
			}
			bits += math.Log2(float64(m.experts-i) / float64(free))
		}
	}
	return bits
}
