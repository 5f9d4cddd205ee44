package router

import (
	"math"

	"outrider/trace"
)

const (
	// ownDecay applies to the sequence's own counts at each token: 1/e in 16.
	ownDecay = 1 - 1.0/16
	// foundWeight and evenWeight are how many tokens the matrix found, and all
	// experts alike, weigh beside the sequence's own.
	foundWeight = 8
	evenWeight  = 1
	// faint is a count that is as good as none: left to decay, it would become a
	// number that processors are slow with.
	faint = 1e-12
	// passWeight is how much more a layer of the pass under way counts than one of
	// the sequence as a whole when matrices are compared.
	passWeight = 30
)

// matrixHistory is a Matrix's view of one sequence. Its products with the
// collection are kept up to date by what changes, so that no call compares whole
// matrices.
type matrixHistory struct {
	matrix *Matrix
	id     uint64

	own     []float32 // by ordinal, decayed tokens
	sums    []float32 // by layer, of own
	lengths []float32 // by layer, of own's rows
	window  []float32 // by ordinal, tokens since the window began
	tokens  int       // in the window
	entry   int       // tokens at which the window enters the collection next
	place   int       // of the window's matrix there; -1 before it entered

	products []float32 // [layer][place], own × the matrix
	versions []uint64  // by place, of those products
	version  uint64    // of all
	before   []float32 // by place, similarity of all before this pass, summed over layers
	pass     []float32 // by place, the same of the layers of this pass
	now      []float32 // scratch, by place
	found    int       // the most similar matrix; -1: none

	seen  []bool // by layer, whether it was observed in this pass
	width int    // tokens of this pass
	used  marks
	tally []float32 // scratch, by expert
}

// newMatrixHistory starts an empty sequence, with the matrix's lock held.
func newMatrixHistory(m *Matrix, id uint64) *matrixHistory {
	shape, capacity := m.shape, m.past.capacity
	h := &matrixHistory{
		matrix: m, id: id,
		own: make([]float32, shape.Count()), window: make([]float32, shape.Count()),
		sums: make([]float32, shape.Layers), lengths: make([]float32, shape.Layers),
		entry: min(firstEntry, m.window), place: -1,
		products: make([]float32, shape.Layers*capacity), versions: make([]uint64, capacity),
		before: make([]float32, capacity), pass: make([]float32, capacity), now: make([]float32, capacity),
		found: -1, seen: make([]bool, shape.Layers), width: 1,
		used: newMarks(shape.Experts), tally: make([]float32, shape.Experts),
	}
	// Products with nothing are nothing, so those of today's matrices are known.
	copy(h.versions, m.past.versions)
	h.version = m.past.version
	return h
}

// Begin compares the sequence as a whole, as nothing is known of the pass.
func (h *matrixHistory) Begin(phase trace.Phase, tokens []int32) {
	h.matrix.mu.RLock()
	defer h.matrix.mu.RUnlock()
	h.refresh()
	switch {
	case len(tokens) > 0:
		h.width = len(tokens)
	case phase == trace.Decode:
		h.width = 1
	}
	clear(h.seen)
	clear(h.pass)
	clear(h.before)
	past := &h.matrix.past
	for l, length := range h.lengths {
		if length == 0 {
			continue
		}
		scale, norms := 1/length, past.norm(l)
		for i, x := range h.products[l*past.capacity:][:past.capacity] {
			h.before[i] += x * norms[i] * scale
		}
	}
	h.find()
}

// Observe counts one pass of a layer and compares its choice. Ids that the model
// does not have are left out.
func (h *matrixHistory) Observe(layer int, choices []Choice) {
	if layer < 0 || layer >= h.matrix.shape.Layers {
		return
	}
	used := h.count(choices)
	h.matrix.mu.RLock()
	h.refresh()
	h.compare(layer, used, len(choices))
	h.find()
	h.matrix.mu.RUnlock()
	h.seen[layer] = true
	h.width = max(len(choices), 1)
	if layer == h.matrix.shape.Layers-1 {
		h.endPass(len(choices))
	}
}

// count tallies the tokens that chose each expert.
func (h *matrixHistory) count(choices []Choice) []int32 {
	used := h.used.union(choices)
	for _, e := range used {
		h.tally[e] = 0
	}
	for _, c := range choices {
		for _, e := range c.Experts {
			if uint(e) < uint(len(h.tally)) {
				h.tally[e]++
			}
		}
	}
	return used
}

// compare adds the tally of a layer to the sequence's counts, and to the products
// and similarities that follow from them.
func (h *matrixHistory) compare(layer int, used []int32, tokens int) {
	past := &h.matrix.past
	experts := past.shape.Experts
	decay := float32(math.Pow(ownDecay, float64(tokens)))
	own, window := h.own[layer*experts:][:experts], h.window[layer*experts:][:experts]
	for e, n := range own {
		own[e] = fade(n, decay)
	}
	h.sums[layer] = fade(h.sums[layer], decay)
	clear(h.now)
	square := float32(0)
	for _, e := range used {
		n := h.tally[e]
		own[e] += n
		window[e] += n
		h.sums[layer] += n
		square += n * n
		axpy(n, past.expert(layer, int(e)), h.now)
	}
	h.lengths[layer] = length(own)
	products, norms := h.products[layer*past.capacity:][:past.capacity], past.norm(layer)
	scale := float32(0)
	if square > 0 && !h.seen[layer] {
		scale = 1 / root(square)
	}
	for i, x := range h.now {
		products[i] = fade(products[i], decay) + x
		h.pass[i] += x * norms[i] * scale
	}
}

// refresh catches up with the matrices that entered since the last call. What this
// pass has shown already is not compared with them.
func (h *matrixHistory) refresh() {
	past := &h.matrix.past
	if h.version == past.version {
		return
	}
	experts := past.shape.Experts
	for i := range past.count {
		if h.versions[i] == past.versions[i] {
			continue
		}
		h.versions[i] = past.versions[i]
		h.before[i], h.pass[i] = 0, 0
		for l := range h.sums {
			h.products[l*past.capacity+i] = past.product(i, l, h.own[l*experts:][:experts])
		}
	}
	h.version = past.version
}

// find looks for the most similar matrix; of equal ones the first.
func (h *matrixHistory) find() {
	past := &h.matrix.past
	h.found = -1
	best := float32(0)
	for i := range past.count {
		if i == h.place && past.owners[i] == h.id {
			continue
		}
		if x := h.pass[i]*passWeight + h.before[i]; x > best {
			best, h.found = x, i
		}
	}
}

// endPass lets the window enter the collection when it is time to.
func (h *matrixHistory) endPass(tokens int) {
	if h.tokens += tokens; h.tokens < h.entry {
		return
	}
	m := h.matrix
	m.mu.Lock()
	if h.place < 0 || m.past.owners[h.place] != h.id {
		h.place = m.past.place(h.found)
	}
	m.past.write(h.place, h.id, h.window)
	h.refresh()
	h.find()
	m.mu.Unlock()
	if h.tokens < m.window {
		for h.entry <= h.tokens {
			h.entry = min(2*h.entry, m.window)
		}
		return
	}
	clear(h.window)
	h.tokens, h.entry, h.place = 0, min(firstEntry, m.window), -1
}

// Score forecasts a layer; one that does not exist scores 0.
func (h *matrixHistory) Score(layer int, dst []float32) {
	shape := h.matrix.shape
	if !fits(shape, layer, dst) {
		clear(dst)
		return
	}
	topK := float32(shape.TopK)
	even := evenWeight * topK
	weight := h.sums[layer] + even
	for e, n := range h.own[layer*shape.Experts:][:len(dst)] {
		dst[e] = n + even/float32(shape.Experts)
	}
	if h.found >= 0 {
		weight += foundWeight * topK
		h.addFound(layer, foundWeight*topK, dst)
	}
	for e := range dst {
		dst[e] = min(dst[e]*topK/weight, 1)
	}
	if h.width > 1 {
		anyOf(dst, h.width)
	}
}

// addFound adds the row of the matrix found, times a factor.
func (h *matrixHistory) addFound(layer int, factor float32, dst []float32) {
	h.matrix.mu.RLock()
	defer h.matrix.mu.RUnlock()
	for e := range dst {
		dst[e] += factor * h.matrix.past.expert(layer, e)[h.found]
	}
}

// anyOf turns the probability of use by one token into that by any of several.
func anyOf(p []float32, tokens int) {
	for e, x := range p {
		p[e] = float32(-math.Expm1(float64(tokens) * math.Log1p(-float64(x))))
	}
}

func fade(x, decay float32) float32 {
	if x < faint {
		return 0
	}
	return x * decay
}

func length(row []float32) float32 {
	square := float32(0)
	for _, x := range row {
		square += x * x
	}
	return root(square)
}

func root(x float32) float32 { return float32(math.Sqrt(float64(x))) }
