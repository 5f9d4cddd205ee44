package trace

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Limits of a trace, next to those of layout.Shape. They exist so that a
// damaged or hostile file cannot make a reader allocate without bound.
const (
	// MaxIDs is the most expert ids that one token may have over all layers.
	MaxIDs = 1 << 18
	// MaxText is the most bytes that each text of a header may have.
	MaxText = 64 << 10
)

// Validate reports the first way in which a header is not one a trace can have.
func (h *Header) Validate() error {
	if err := h.validate(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	return nil
}

// validate answers with a plain reason; its callers add the place.
func (h *Header) validate() error {
	if err := h.Shape.Validate(); err != nil {
		return err
	}
	if n := h.ids(); n > MaxIDs {
		return fmt.Errorf("a token has %d expert ids over all layers, want at most %d", n, MaxIDs)
	}
	for i, id := range h.Shape.LayerIDs {
		if id > math.MaxInt32 {
			return fmt.Errorf("layer %d is block %d, want at most %d", i, id, math.MaxInt32)
		}
	}
	if h.Phase > Decode {
		return fmt.Errorf("phase %d is none of unknown (0), prefill (1), decode (2)", h.Phase)
	}
	if h.IDs > IDsPhysical || h.Ranked > No || h.Sequences > No {
		return fmt.Errorf("facts %#x are none that a header can state", h.factBits())
	}
	for _, text := range []struct{ name, s string }{{"model", h.Model}, {"source", h.Source}, {"note", h.Note}} {
		if len(text.s) > MaxText {
			return fmt.Errorf("the header's %s has %d bytes, want at most %d", text.name, len(text.s), MaxText)
		}
		if !utf8.ValidString(text.s) {
			return fmt.Errorf("the header's %s is not valid UTF-8", text.name)
		}
	}
	return nil
}

// ids is how many expert ids one token has over all layers, fill included.
func (h *Header) ids() int { return h.Shape.Layers * h.Shape.TopK }

// checker proves that activations fit their header. It holds scratch, so each
// reader and writer has its own.
type checker struct {
	header *Header
	seen   []uint32 // seen[id] == stamp: the id stands in the row at hand
	stamp  uint32
}

func newChecker(h *Header) checker {
	return checker{header: h, seen: make([]uint32, h.Shape.Experts)}
}

// check answers with a plain reason; its callers add the place.
func (c *checker) check(a *Activation) error {
	h := c.header
	switch {
	case a.Seq < 0:
		return fmt.Errorf("sequence %d is negative", a.Seq)
	case a.Pos < 0:
		return fmt.Errorf("position %d is negative", a.Pos)
	case a.Phase > Decode:
		return fmt.Errorf("phase %d is none of unknown (0), prefill (1), decode (2)", a.Phase)
	case h.Phase != PhaseUnknown && a.Phase != PhaseUnknown && a.Phase != h.Phase:
		return fmt.Errorf("phase is %s, but the header says that all tokens are %s", a.Phase, h.Phase)
	case a.Token < -1:
		return fmt.Errorf("token id is %d, want 0 or more, or -1 for unknown", a.Token)
	case len(a.Experts) != h.ids():
		return fmt.Errorf("there are %d expert ids, want %d layers of %d", len(a.Experts), h.Shape.Layers, h.Shape.TopK)
	case h.Weights && len(a.Weights) != h.ids():
		return fmt.Errorf("there are %d gate weights, want %d layers of %d", len(a.Weights), h.Shape.Layers, h.Shape.TopK)
	}
	for l := range h.Shape.Layers {
		if err := c.row(a.Experts[l*h.Shape.TopK : (l+1)*h.Shape.TopK]); err != nil {
			return fmt.Errorf("layer %d: %w", l, err)
		}
	}
	if h.Weights {
		for i, w := range a.Weights {
			if f := float64(w); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("layer %d: gate weight %v is not a finite number", i/h.Shape.TopK, w)
			}
		}
	}
	return nil
}

// row proves that ids are in range and distinct, and that fill stands last.
func (c *checker) row(ids []int32) error {
	c.stamp++
	if c.stamp == 0 {
		clear(c.seen)
		c.stamp = 1
	}
	filled := false
	for _, id := range ids {
		switch {
		case id == -1:
			filled = true
			continue
		case filled:
			return fmt.Errorf("expert id %d stands after the row's end (-1)", id)
		case id < 0 || int(id) >= len(c.seen):
			return fmt.Errorf("expert id %d is outside 0 to %d", id, len(c.seen)-1)
		case c.seen[id] == c.stamp:
			return fmt.Errorf("expert id %d is named twice", id)
		}
		c.seen[id] = c.stamp
	}
	return nil
}

// resized gives s the length n, reusing its room where it suffices.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
