package trace

import (
	"errors"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"

	"outrider/layout"
)

// MaxHistoryExperts is the most experts, over all layers, that a History has.
const MaxHistoryExperts = 1 << 20

// ErrHistoryFull says that a history has the most tokens it can number.
var ErrHistoryFull = errors.New("history is full")

// History is an index of a trace: for each expert of each layer the set of the
// tokens that used it, numbered in the order they were added. It answers how
// often experts occur together without the trace. Its methods may run at the
// same time as each other, but not as Add.
//
// An expert that the shape does not have was never used: counts of it are 0.
type History struct {
	shape   layout.Shape
	tokens  uint64
	entries []historyEntry // by layout.Shape.Ordinal
	check   checker
	recent  *recent
}

type historyEntry struct {
	users *roaring.Bitmap // nil: none
	reuse uint64
}

// NewHistory makes an empty history.
func NewHistory(shape layout.Shape) (*History, error) {
	header := Header{Shape: shape}
	if err := header.Validate(); err != nil {
		return nil, err
	}
	if n := shape.Count(); n > MaxHistoryExperts {
		return nil, fmt.Errorf("trace: a history of %d experts, want at most %d", n, MaxHistoryExperts)
	}
	return &History{
		shape:   shape,
		entries: make([]historyEntry, shape.Count()),
		check:   newChecker(&header),
		recent:  newRecent(header.ids()),
	}, nil
}

// Shape is the shape of the trace.
func (h *History) Shape() layout.Shape { return h.shape }

// Tokens is how many tokens were added.
func (h *History) Tokens() uint64 { return h.tokens }

// Add enters one token. An activation that does not fit the shape is refused
// with ErrActivation; after 2^32-1 tokens the answer is ErrHistoryFull.
func (h *History) Add(a *Activation) error {
	if h.tokens == math.MaxUint32 {
		return fmt.Errorf("trace: %w: it has %d tokens", ErrHistoryFull, h.tokens)
	}
	if err := h.check.check(a); err != nil {
		return fmt.Errorf("trace: %w: token %d: %w", ErrActivation, h.tokens, err)
	}
	before, known := h.recent.swap(a.Seq, a.Experts)
	topK := h.shape.TopK
	for l := range h.shape.Layers {
		ids, _ := a.Row(l, topK)
		for _, id := range ids {
			e := &h.entries[l*h.shape.Experts+int(id)]
			if e.users == nil {
				e.users = roaring.New()
			}
			e.users.Add(uint32(h.tokens))
			if known && contains(before[l*topK:(l+1)*topK], id) {
				e.reuse++
			}
		}
	}
	h.tokens++
	return nil
}

func contains(row []int32, id int32) bool {
	for _, r := range row {
		if r == id {
			return true
		}
	}
	return false
}

var noEntry historyEntry

func (h *History) entry(layer int, expert int32) *historyEntry {
	if layer < 0 || layer >= h.shape.Layers || expert < 0 || int(expert) >= h.shape.Experts {
		return &noEntry
	}
	return &h.entries[layer*h.shape.Experts+int(expert)]
}

// Uses is how many tokens used an expert.
func (h *History) Uses(layer int, expert int32) uint64 {
	if e := h.entry(layer, expert); e.users != nil {
		return e.users.GetCardinality()
	}
	return 0
}

// Popularity appends to dst, for each expert of a layer, how many tokens used
// it. It counts through the index, so take it once rather than per token.
func (h *History) Popularity(layer int, dst []uint64) []uint64 {
	for e := range int32(h.shape.Experts) {
		dst = append(dst, h.Uses(layer, e))
	}
	return dst
}

// Coactivation is how many tokens used both experts of a layer.
func (h *History) Coactivation(layer int, a, b int32) uint64 {
	return together(h.entry(layer, a), h.entry(layer, b))
}

// Transition is how many tokens used a in a layer, and b in the layer after it.
func (h *History) Transition(layer int, a, b int32) uint64 {
	return together(h.entry(layer, a), h.entry(layer+1, b))
}

// Reuse is how many tokens used an expert that the token before them in their
// sequence had used too. Of more than 4096 sequences at once (fewer, with more
// than 4096 ids a token) those longest without a token start anew; so do all
// sequences after a history was saved and opened again.
func (h *History) Reuse(layer int, expert int32) uint64 { return h.entry(layer, expert).reuse }

func together(a, b *historyEntry) uint64 {
	if a.users == nil || b.users == nil {
		return 0
	}
	return a.users.AndCardinality(b.users)
}
