package trace

// Bounds of a recent: how many sequences it remembers, and in how many bytes.
const (
	recentSequences = 4096
	recentBytes     = 64 << 20
)

// recent remembers the last token's experts of each of the sequences that were
// active lately, so that sequences may interleave as a batch makes them. Its
// memory is bounded: the sequence that was longest without a token is forgotten.
type recent struct {
	slots  map[int64]int
	seqs   []int64 // of each slot
	used   []uint64
	rows   [][]int32
	before []int32
	tick   uint64
	limit  int
}

func newRecent(ids int) *recent {
	limit := min(max(recentBytes/(4*ids), 1), recentSequences)
	return &recent{slots: map[int64]int{}, limit: limit, before: make([]int32, ids)}
}

// swap remembers ids as the last token of seq, and returns the one before it,
// valid until the next call; false where there is none.
func (r *recent) swap(seq int64, ids []int32) (before []int32, known bool) {
	r.tick++
	slot, known := r.slots[seq]
	if known {
		copy(r.before, r.rows[slot])
	} else {
		slot = r.free()
		r.slots[seq] = slot
		r.seqs[slot] = seq
	}
	r.used[slot] = r.tick
	copy(r.rows[slot], ids)
	return r.before, known
}

// free is a slot for a new sequence.
func (r *recent) free() int {
	if n := len(r.seqs); n < r.limit {
		r.seqs = append(r.seqs, 0)
		r.used = append(r.used, 0)
		r.rows = append(r.rows, make([]int32, len(r.before)))
		return n
	}
	oldest := 0
	for slot, tick := range r.used {
		if tick < r.used[oldest] {
			oldest = slot
		}
	}
	delete(r.slots, r.seqs[oldest])
	return oldest
}
