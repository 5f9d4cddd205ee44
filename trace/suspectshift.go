package trace

import (
	"math"

	"outrider/layout"
)

// Bounds of the shift test.
const (
	shiftMost      = 2 // rows that a layer may be off
	shifts         = 2*shiftMost + 1
	shiftRows      = 8192    // most rows that are looked at
	shiftWork      = 1 << 26 // most pairs of experts that are counted, about a second
	shiftCounts    = 1 << 24 // counters, of two bytes each
	shiftSequences = 1024    // sequences remembered at once, fewer with many ids a token
	shiftBlock     = 16      // rows of a block
	shiftBlocks    = 16      // the fewest blocks to judge by
	shiftPrior     = 8       // pairs that a forecast from nothing is worth
)

// When the shift test warns; see shiftTest.
const (
	shiftZ     = 6.0  // standard errors that a shift is better than none
	shiftBits  = 0.02 // the least information at the better shift, in bits an expert
	shiftTimes = 1.25 // the least information there over that at shift 0
)

// shiftTest finds layers whose rows are those of other tokens than the other
// layers' rows, by what each layer tells about the next one.
//
// For each pair of consecutive layers and each shift s from -2 to 2 it forecasts
// what layer l+1 chose at row i+s from what layer l chose at row i of the same
// sequence, with the counts of the rows before, and measures how many bits an
// expert of that choice is less surprising than by load alone. In a proper trace a
// token's own row tells most: s = 0 is best for every pair that tells anything. If
// layer l is n rows late, s = n is best for the pair (l-1, l) and -n for (l, l+1).
//
// A shift is better than none in a pair if it is by 6 standard errors, measured
// between blocks of 16 rows, of which there must be 16; and if it tells 0.02 bits
// or more, and 1.25 times what shift 0 tells. What the pairs say together decides
// which layers are off; see lateness. All means are interquartile over the blocks.
//
// Models too large to count all pairs of experts are folded: experts whose index
// has the same remainder count as one. The first 8192 rows are looked at, or fewer
// where a row has very many pairs.
type shiftTest struct {
	shape  layout.Shape
	width  int                    // experts, after folding
	rows   int                    // with a full window
	limit  int                    // of them
	past   [2]*recent             // of each sequence: its last row, and the one before
	window [shiftMost + 1][]int32 // folded ids of the row at hand and of those before it
	loads  [][]float64            // by layer and expert
	counts [][]uint16             // by pair and shift
	sums   [][shifts]float64      // by pair: of the current block
	blocks [][][shifts]float32    // by pair: means of each block
}

func newShiftTest(shape layout.Shape) *shiftTest {
	pairs := shape.Layers - 1
	t := &shiftTest{shape: shape, width: shape.Experts}
	if pairs < 1 {
		return t
	}
	t.width = min(shape.Experts, int(math.Sqrt(float64(shiftCounts/(shifts*pairs)))))
	work := int64(pairs) * shifts * int64(shape.TopK) * int64(shape.TopK) // of one row
	t.limit = int(min(shiftRows, shiftWork/work))
	ids := shape.Layers * shape.TopK
	for i := range t.past {
		t.past[i] = newRecent(ids)
		t.past[i].limit = min(max(t.past[i].limit/4, 1), shiftSequences)
	}
	for i := range t.window {
		t.window[i] = make([]int32, ids)
	}
	t.loads = make([][]float64, shape.Layers)
	for l := range t.loads {
		t.loads[l] = make([]float64, t.width)
	}
	t.counts = make([][]uint16, pairs*shifts)
	for i := range t.counts {
		t.counts[i] = make([]uint16, t.width*t.width)
	}
	t.sums = make([][shifts]float64, pairs)
	t.blocks = make([][][shifts]float32, pairs)
	return t
}

func (t *shiftTest) add(a *Activation) {
	if t.rows >= t.limit || !t.slide(a) {
		return
	}
	for l := range t.sums {
		for i := range shifts {
			t.sums[l][i] += t.pair(l, i-shiftMost)
		}
	}
	for l := range t.loads {
		for _, e := range t.row(0, l) {
			t.loads[l][e]++
		}
	}
	if t.rows++; t.rows%shiftBlock == 0 {
		for l := range t.sums {
			var block [shifts]float32
			for i, sum := range t.sums[l] {
				block[i] = float32(sum / shiftBlock)
			}
			t.blocks[l] = append(t.blocks[l], block)
			t.sums[l] = [shifts]float64{}
		}
	}
}

// slide makes the window that of a's sequence, and reports whether it is full.
func (t *shiftTest) slide(a *Activation) bool {
	one, known := t.past[0].swap(a.Seq, a.Experts)
	if !known {
		return false
	}
	two, known := t.past[1].swap(a.Seq, one)
	if !known {
		return false
	}
	for i, ids := range [...][]int32{a.Experts, one, two} {
		for k, id := range ids {
			if id >= int32(t.width) {
				id %= int32(t.width)
			}
			t.window[i][k] = id
		}
	}
	return true
}

// row is the folded choice of a layer, so many rows back.
func (t *shiftTest) row(back, layer int) []int32 {
	ids := t.window[back][layer*t.shape.TopK : (layer+1)*t.shape.TopK]
	n := len(ids)
	for n > 0 && ids[n-1] < 0 {
		n--
	}
	return ids[:n]
}

// pair is how many bits an expert of layer l+1 is less surprising, given layer
// l s rows before. It counts the two rows afterwards.
func (t *shiftTest) pair(l, s int) float64 {
	from, to := t.row(max(s, 0), l), t.row(max(-s, 0), l+1)
	if len(from) == 0 || len(to) == 0 {
		return 0
	}
	counts := t.counts[l*shifts+s+shiftMost]
	known := 0.0
	for _, a := range from {
		known += t.loads[l][a]
	}
	known *= float64(len(to))
	total := float64(t.rows * len(to))
	bits := 0.0
	for _, b := range to {
		together := 0.0
		for _, a := range from {
			c := &counts[int(a)*t.width+int(b)]
			together += float64(*c)
			if *c < math.MaxUint16 {
				*c++
			}
		}
		// Both shares sum to 1 over b; the second leans on the first where little is known.
		alone := (t.loads[l+1][b] + 0.5) / (total + 0.5*float64(t.width))
		given := (together + shiftPrior*alone) / (known + shiftPrior)
		bits += math.Log2(given / alone)
	}
	return bits / float64(len(to))
}

// information is how many bits an expert each shift of a pair tells, and by how
// many standard errors that is better than shift 0: above 0 only where it is so
// by the rule in shiftTest's comment. One error, the largest, serves all shifts,
// so that the best of them has the highest gain.
func (t *shiftTest) information(l int) (told, gains [shifts]float64) {
	values := make([]float64, len(t.blocks[l]))
	measure := func(of func([shifts]float32) float32) blockMean {
		for i, block := range t.blocks[l] {
			values[i] = float64(of(block))
		}
		return interquartile(values)
	}
	worst := 0.0
	for i := range shifts {
		told[i] = measure(func(b [shifts]float32) float32 { return b[i] }).mean
		more := measure(func(b [shifts]float32) float32 { return b[i] - b[shiftMost] })
		gains[i], worst = more.mean, max(worst, more.err)
	}
	none := max(told[shiftMost], 0)
	for i := range shifts {
		gains[i] = blockMean{gains[i], worst}.z()
		if gains[i] < shiftZ || told[i] < shiftBits || told[i] < shiftTimes*none {
			gains[i] = min(gains[i], 0)
		}
	}
	return told, gains
}
