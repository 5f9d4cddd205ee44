package trace

import (
	"fmt"
	"math"
	"math/bits"

	"outrider/layout"
)

// Bounds of the reuse test.
const (
	reuseStride = 64              // the longest stride that is looked for
	reuseSpan   = 2 * reuseStride // distances that are measured
	reuseLayers = 8               // layers that are looked at, spread over the model
	reuseSlots  = 256             // sequences remembered at once
	reuseMemory = 16 << 20        // bytes for them
	reuseBlock  = 32              // rows of a block
	reuseBlocks = 12              // the fewest blocks to judge a distance by
	reuseWork   = 1 << 28         // most repeated uses that are counted, well below a second
)

// When the reuse test warns; see reuseTest.
const (
	reuseZ       = 6.0   // standard errors that the peak stands above distance 1, and above its neighbours
	reusePeak    = 1.1   // the least peak over the base
	reuseSame    = 0.8   // the most reuse at the peak: above it, rows are the same again
	reuseContext = 0.3   // the most excess at distance 1, above or below, over that at the peak
	reuseDecay   = 0.125 // the least loss of excess from the peak to twice its distance
)

// reuseTest finds rows of several sequences under one Seq by their reuse of
// experts by row distance.
//
// R(d) is the share of a row's experts that the row d before it in the same
// sequence used too. In a proper sequence it is highest at 1, because neighbours
// share their context, and falls to a base with distance. If the rows of D
// sequences alternate, neighbours are strangers: R(1) is the base, and what was
// R(1) and R(2) stands at D and 2D. Text of a short period, such as a table or a
// generation that loops, has a peak at its period too. But there R(1) differs from
// the base, and a period comes back at twice its length as well as at once.
//
// So it warns of stride D, 2 to 64, if R is highest at D of all distances up to
// 64, and
//
//   - R(D) is above R(1), and above the mean of R(D-1) and R(D+1), by 6 standard
//     errors each, measured between blocks of 32 rows;
//   - R(D) is at least 1.1 of the base, the mean R over distances 2 to 128 that
//     are no multiple of D, and at most 0.8: rows more alike are a loop's;
//   - R(1) is at the base within 0.3 of the excess of R(D) over it;
//   - of that excess at least an eighth is gone at 2D.
//
// All means are interquartile over the blocks, so that no short part of the trace
// decides, and a distance counts if 12 blocks have it.
type reuseTest struct {
	layers  []int
	topK    int
	experts int
	slots   map[int64]*reuseSlot
	limit   int // of slots
	work    int // repeated uses counted
	tick    int
	blocks  [][reuseSpan + 1]float32 // R by distance; -1 where no row had one
	hits    [reuseSpan + 1]int
	of      [reuseSpan + 1]int
	rows    int // of the current block
}

// reuseSlot remembers, for each expert of the layers looked at, which of the
// last 128 rows of a sequence used it: bit d-1 for the row d before row at.
type reuseSlot struct {
	used  int // tick of the last row
	first int // the sequence's first row
	next  int
	at    []int32
	masks [][2]uint64
}

func newReuseTest(shape layout.Shape) *reuseTest {
	n := min(shape.Layers, reuseLayers)
	r := &reuseTest{topK: shape.TopK, experts: shape.Experts, slots: map[int64]*reuseSlot{}}
	for i := range n {
		r.layers = append(r.layers, (2*i+1)*shape.Layers/(2*n))
	}
	r.limit = min(max(reuseMemory/(20*n*shape.Experts), 1), reuseSlots)
	return r
}

func (r *reuseTest) add(a *Activation) {
	if r.work > reuseWork {
		return
	}
	slot := r.slot(a.Seq)
	span := min(slot.next-slot.first, reuseSpan)
	ids := 0
	for i, l := range r.layers {
		row, _ := a.Row(l, r.topK)
		ids += len(row)
		for _, id := range row {
			r.count(slot, i*r.experts+int(id))
		}
	}
	slot.next++
	for d := 1; d <= span; d++ {
		r.of[d] += ids
	}
	if r.rows++; r.rows == reuseBlock {
		r.endBlock()
	}
}

// count adds the distances at which an expert was used before, and its use now.
func (r *reuseTest) count(slot *reuseSlot, expert int) {
	mask := &slot.masks[expert]
	mask[0], mask[1] = shifted(mask[0], mask[1], slot.next-int(slot.at[expert]))
	r.work += bits.OnesCount64(mask[0]) + bits.OnesCount64(mask[1])
	for m := mask[0]; m != 0; m &= m - 1 {
		r.hits[bits.TrailingZeros64(m)+1]++
	}
	for m := mask[1]; m != 0; m &= m - 1 {
		r.hits[bits.TrailingZeros64(m)+65]++
	}
	// This row is at distance 0; the next shift, of 1 or more, makes it bit 0.
	mask[0], mask[1] = shifted(mask[0], mask[1], 1)
	mask[0] |= 1
	slot.at[expert] = int32(slot.next + 1)
}

// shifted moves 128 bits up by n.
func shifted(low, high uint64, n int) (uint64, uint64) {
	switch {
	case n == 0:
		return low, high
	case n < 64:
		return low << n, high<<n | low>>(64-n)
	}
	return 0, low << (n - 64) // 0 if n is 128 or more
}

// slot is a sequence's memory. If there are too many sequences, the one that was
// longest without a row is forgotten: its rows are too far back to be seen.
func (r *reuseTest) slot(seq int64) *reuseSlot {
	r.tick++
	slot := r.slots[seq]
	if slot == nil {
		slot = r.freeSlot()
		r.slots[seq] = slot
	}
	slot.used = r.tick
	return slot
}

func (r *reuseTest) freeSlot() *reuseSlot {
	if len(r.slots) < r.limit {
		n := len(r.layers) * r.experts
		return &reuseSlot{at: make([]int32, n), masks: make([][2]uint64, n)}
	}
	var oldest int64
	var slot *reuseSlot
	for seq, s := range r.slots {
		if slot == nil || s.used < slot.used {
			oldest, slot = seq, s
		}
	}
	delete(r.slots, oldest)
	slot.next += reuseSpan + 1
	slot.first = slot.next
	return slot
}

func (r *reuseTest) endBlock() {
	var block [reuseSpan + 1]float32
	for d := range block {
		block[d] = -1
		if r.of[d] > 0 {
			block[d] = float32(r.hits[d]) / float32(r.of[d])
		}
	}
	r.blocks = append(r.blocks, block)
	clear(r.hits[:])
	clear(r.of[:])
	r.rows = 0
}

// mean is the interquartile mean of R(d) over the blocks; 0 if there are too few.
func (r *reuseTest) mean(d int) float64 {
	m := r.contrast(func(b *[reuseSpan + 1]float32) (float64, bool) { return float64(b[d]), b[d] >= 0 })
	return m.mean
}

// contrast measures something over all blocks that know it.
func (r *reuseTest) contrast(of func(*[reuseSpan + 1]float32) (float64, bool)) blockMean {
	var values []float64
	for i := range r.blocks {
		if v, ok := of(&r.blocks[i]); ok {
			values = append(values, v)
		}
	}
	if len(values) < reuseBlocks {
		return blockMean{}
	}
	return interquartile(values)
}

// peak is the distance of the highest R, and all R.
func (r *reuseTest) peak() (stride int, curve [reuseSpan + 1]float64) {
	stride = 1
	for d := 1; d <= reuseSpan; d++ {
		curve[d] = r.mean(d)
		if d <= reuseStride && curve[d] > curve[stride] {
			stride = d
		}
	}
	return stride, curve
}

// base is the mean R of distances that are no multiple of stride.
func base(curve *[reuseSpan + 1]float64, stride int) float64 {
	sum, n := 0.0, 0
	for d := 2; d <= reuseSpan; d++ {
		if d%stride != 0 && curve[d] > 0 {
			sum += curve[d]
			n++
		}
	}
	return sum / float64(max(n, 1))
}

func (r *reuseTest) warnings() []Warning {
	d, curve := r.peak()
	if !r.interleaved(d, &curve) {
		return nil
	}
	return []Warning{{
		Kind: InterleavedSequences, Layer: -1, Rows: d,
		Text: fmt.Sprintf("rows of %d sequences seem to alternate under one sequence number: a row shares %.1f %% of its experts with the row %d before it, "+
			"but only %.1f %% with the row just before, which in a true sequence is most like it; give each of the %d a sequence number of its own",
			d, 100*curve[d], d, 100*curve[1], d),
	}}
}

// interleaved is the rule in reuseTest's comment.
func (r *reuseTest) interleaved(d int, curve *[reuseSpan + 1]float64) bool {
	level := base(curve, d)
	excess := curve[d] - level
	if d == 1 || curve[2*d] == 0 ||
		curve[d] < reusePeak*level || curve[d] > reuseSame ||
		math.Abs(curve[1]-level) > reuseContext*excess ||
		curve[d]-curve[2*d] < reuseDecay*excess {
		return false
	}
	above := r.contrast(func(b *[reuseSpan + 1]float32) (float64, bool) {
		return float64(b[d] - b[1]), b[d] >= 0
	})
	beside := r.contrast(func(b *[reuseSpan + 1]float32) (float64, bool) {
		return float64(b[d] - (b[d-1]+b[d+1])/2), b[d+1] >= 0
	})
	return above.z() >= reuseZ && beside.z() >= reuseZ
}
