package trace

import (
	"errors"
	"fmt"
	"io"
	"math"
)

// maxPairs bounds the counters of expert pairs that Collect keeps, each of two kinds.
const maxPairs = 1 << 24

// Stats describes a trace.
type Stats struct {
	Header    Header
	Tokens    int64
	Sequences int64 // of more than 4096 at once, those that come back late are counted again
	Prefill   int64 // tokens by phase
	Decode    int64
	Unknown   int64

	// Cycle is how many experts a token uses over all layers, on average, and
	// MaxCycle the most that one did. A recency cache smaller than that holds
	// nothing that the next token could use.
	Cycle    float64
	MaxCycle int

	Layers []LayerStats

	// Informed says that the two information figures were measured: the trace
	// has at least two observed pairs for each possible one, and the model is
	// not so large that counting them would take too much memory.
	Informed bool

	// Uniform says that in every layer the load is even (entropy at least 0.99
	// of the most it can be), experts are reused about as often as chance would
	// have it, and neither the token before nor the layer before tells more than
	// a hundredth of what there is to know. No forecast from such history can
	// win; that a token's own id would tell is not ruled out.
	Uniform bool

	// Warnings are signs that the trace was not recorded as it claims; none is
	// the rule. Only the first 20000 tokens are looked at.
	Warnings []Warning
}

// LayerStats describes the routing of one layer.
type LayerStats struct {
	Loads   []uint64 // how many tokens used each expert
	Entropy float64  // of the load, in bits; log2 of the experts when even
	MaxMean float64  // the highest load over the mean one; 1 when even

	// Reuse is the share of uses whose expert the token before, in the same
	// sequence, had used too; ReuseChance is what that would be if tokens were
	// drawn by load alone.
	Reuse       float64
	ReuseChance float64

	// TokenInfo is how many bits one expert of the token before tells about one
	// of this token's, and LayerInfo one of the layer before (0 for layer 0);
	// corrected for the bias of few samples. 0 unless Stats.Informed.
	TokenInfo float64
	LayerInfo float64
}

// Collect reads up to limit tokens of s (0 or less: all) in one pass. Its memory
// does not grow with the trace: at most about 300 MiB, for the largest models.
// When s fails, the statistics of the tokens before are returned along with the
// error.
func Collect(s Stream, limit int) (*Stats, error) {
	h := s.Header()
	if err := h.Validate(); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = math.MaxInt
	}
	c := newCollector(h)
	var a Activation
	var err error
	for c.stats.Tokens < int64(limit) {
		if err = s.Next(&a); err != nil {
			break
		}
		c.add(&a)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return c.finish(), err
}

type collector struct {
	stats  Stats
	recent *recent
	used   int64    // over all tokens and layers
	reused []uint64 // by layer
	chance []uint64 // by layer: uses that had a token before
	tokens pairCounts
	layers pairCounts
	odd    *suspects
}

func newCollector(h Header) *collector {
	c := &collector{
		stats:  Stats{Header: h, Layers: make([]LayerStats, h.Shape.Layers)},
		recent: newRecent(h.ids()),
		reused: make([]uint64, h.Shape.Layers),
		chance: make([]uint64, h.Shape.Layers),
		tokens: newPairCounts(h.Shape.Layers, h.Shape.Experts),
		layers: newPairCounts(h.Shape.Layers, h.Shape.Experts),
		odd:    newSuspects(h),
	}
	for l := range c.stats.Layers {
		c.stats.Layers[l].Loads = make([]uint64, h.Shape.Experts)
	}
	return c
}

func (c *collector) add(a *Activation) {
	s, topK := &c.stats, c.stats.Header.Shape.TopK
	s.Tokens++
	switch a.Phase {
	case Prefill:
		s.Prefill++
	case Decode:
		s.Decode++
	default:
		s.Unknown++
	}
	before, known := c.recent.swap(a.Seq, a.Experts)
	if !known {
		s.Sequences++
	}
	cycle := 0
	for l := range s.Layers {
		ids, _ := a.Row(l, topK)
		cycle += len(ids)
		for _, id := range ids {
			s.Layers[l].Loads[id]++
		}
		if known {
			past := before[l*topK : (l+1)*topK]
			c.chance[l] += uint64(len(ids))
			for _, id := range ids {
				if contains(past, id) {
					c.reused[l]++
				}
			}
			c.tokens.add(l, past, ids)
		}
		if l > 0 {
			c.layers.add(l, a.Experts[(l-1)*topK:l*topK], ids)
		}
	}
	c.used += int64(cycle)
	s.MaxCycle = max(s.MaxCycle, cycle)
	c.odd.add(a)
}

func (c *collector) finish() *Stats {
	s := &c.stats
	if s.Tokens == 0 {
		return s
	}
	s.Cycle = float64(c.used) / float64(s.Tokens)
	s.Informed = true
	for l := range s.Layers {
		c.finishLoads(l)
		s.Informed = s.Informed && c.tokens.enough(l) && (l == 0 || c.layers.enough(l))
	}
	if s.Informed {
		for l := range s.Layers {
			s.Layers[l].TokenInfo = c.tokens.information(l, s.Header.Shape.TopK)
			if l > 0 {
				s.Layers[l].LayerInfo = c.layers.information(l, s.Header.Shape.TopK)
			}
		}
	}
	s.Uniform = s.Informed && c.uniform()
	s.Warnings = c.odd.warnings()
	return s
}

func (c *collector) finishLoads(l int) {
	layer := &c.stats.Layers[l]
	load := loadOf(layer.Loads)
	layer.Entropy, layer.MaxMean = load.Entropy, load.MaxMean
	if load.Total == 0 {
		return
	}
	for _, n := range layer.Loads {
		layer.ReuseChance += float64(n) / load.Total * float64(n) / float64(c.stats.Tokens)
	}
	if c.chance[l] > 0 {
		layer.Reuse = float64(c.reused[l]) / float64(c.chance[l])
	}
}

func (c *collector) uniform() bool {
	shape := c.stats.Header.Shape
	if shape.TopK == shape.Experts {
		return false // every token uses every expert: nothing is uncertain
	}
	even := math.Log2(float64(shape.Experts))
	for l := range c.stats.Layers {
		s := &c.stats.Layers[l]
		// Three deviations of a share measured on so many uses.
		noise := 3 * math.Sqrt(s.ReuseChance*(1-s.ReuseChance)/max(float64(c.chance[l]), 1))
		switch {
		case s.Entropy < 0.99*even,
			math.Abs(s.Reuse-s.ReuseChance) > 0.1*s.ReuseChance+noise,
			s.TokenInfo > 0.01*even,
			s.LayerInfo > 0.01*even:
			return false
		}
	}
	return true
}

// Hint says in a sentence what a uniform trace means for forecasts, or is empty.
func (s *Stats) Hint() string {
	if !s.Uniform {
		return ""
	}
	hint := "the trace is uniform: neither load, the token before nor the layer before tells which experts come next; no forecast from router history can win here"
	if s.Header.Tokens {
		hint += fmt.Sprintf(" (its token ids were not looked at: %d tokens carry them)", s.Tokens)
	}
	return hint
}
