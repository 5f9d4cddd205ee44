package router

import (
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"outrider/layout"
	"outrider/trace"
)

// Optimum is Belady's order of eviction: it knows when each expert is used next,
// and the one used last goes first. It is a bound of demand caching, for
// comparisons only: with demand reads alone, and every expert as large as the
// others, no order has more hits. Speculative reads can beat it.
//
// It must be told, by Routed or by Begin and Turn, exactly what it was made of, in
// the same order; told anything else it ranks wrongly.
type Optimum struct {
	shape layout.Shape
	width int
	used  marks
	next  []uint32     // by use in order, when its expert is used next
	turn  int          // the use that comes next
	now   atomic.Int64 // layer execution under way, -1 before the first
	keys  []float64    // by ordinal, when the expert is used next
}

// never stands for no further use. All others are below it: the number of the
// layer execution times width, plus the place within that execution.
const never = math.MaxUint32

// NewOptimum makes the order for the trace's first tokens, each a pass of its own
// in the order of the trace, as they are decoded one at a time; 0 means all
// tokens. It keeps 4 bytes for each expert id of those tokens, and nothing of the
// trace. It fails with ErrOption above 2^32 - 2 ids.
func NewOptimum(shape layout.Shape, t *trace.Trace, tokens int) (*Optimum, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: optimum: %w", err)
	}
	if !shape.Equal(t.Header.Shape) {
		return nil, fmt.Errorf("router: optimum: %w: the trace of %q has %d layers × %d experts, top %d", ErrShape,
			t.Header.Model, t.Header.Shape.Layers, t.Header.Shape.Experts, t.Header.Shape.TopK)
	}
	if tokens <= 0 || tokens > t.Len() {
		tokens = t.Len()
	}
	ids := uint64(tokens) * uint64(shape.Layers) * uint64(shape.TopK)
	if ids >= never {
		return nil, fmt.Errorf("router: optimum: %w: %d tokens make %d expert ids, at most %d can be known: bound the number of tokens", ErrOption,
			tokens, ids, uint64(never)-1)
	}
	uses := make([]uint32, 0, ids)
	return newOptimum(shape, shape.TopK, uses, func(yield func(int, []int32) bool) {
		for i := range tokens {
			for l := range shape.Layers {
				if used, _ := t.Row(i, l); !yield(l, used) {
					return
				}
			}
		}
	})
}

// NewOptimumOf makes the order for any sequence of layer executions, such as that
// of batches and chunks: for each the layer and the experts that it uses, at most
// width of them, in the order in which Routed or Turn will name them. One that is
// named again in the same execution counts once, at its first place.
//
// It keeps 4 bytes a use. It fails with ErrShape on a layer or an expert that the
// shape does not have, and with ErrOption if an execution uses more than width, or
// if the executions times width are more than 2^32 - 2.
func NewOptimumOf(shape layout.Shape, width int, executions iter.Seq2[int, []int32]) (*Optimum, error) {
	return newOptimum(shape, width, nil, executions)
}

func newOptimum(shape layout.Shape, width int, uses []uint32, executions iter.Seq2[int, []int32]) (*Optimum, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: optimum: %w", err)
	}
	if width < 1 {
		return nil, fmt.Errorf("router: optimum: %w: width is %d, want at least 1", ErrOption, width)
	}
	o := &Optimum{shape: shape, width: width, used: newMarks(shape.Experts), next: uses, keys: filled(shape.Count(), neverUsed)}
	o.now.Store(-1)
	last := make([]int, shape.Count()) // one more than the latest use of each expert
	execution := uint64(0)
	for layer, experts := range executions {
		if err := o.append(execution, layer, experts, last); err != nil {
			return nil, fmt.Errorf("router: optimum: layer execution %d: %w", execution, err)
		}
		execution++
	}
	return o, nil
}

// append links the uses of one execution to the uses before them.
func (o *Optimum) append(execution uint64, layer int, experts []int32, last []int) error {
	if layer < 0 || layer >= o.shape.Layers {
		return fmt.Errorf("%w: layer %d is outside 0 to %d", ErrShape, layer, o.shape.Layers-1)
	}
	for _, e := range experts {
		if e < 0 || int(e) >= o.shape.Experts {
			return fmt.Errorf("%w: expert %d is outside 0 to %d", ErrShape, e, o.shape.Experts-1)
		}
	}
	o.used.start()
	o.used.add(experts)
	used := o.used.list
	if len(used) > o.width {
		return fmt.Errorf("%w: it uses %d experts, width is %d", ErrOption, len(used), o.width)
	}
	if execution >= never/uint64(o.width) {
		return fmt.Errorf("%w: more than %d executions of up to %d experts are too many: bound the number of tokens", ErrOption, execution, o.width)
	}
	for i, e := range used {
		at := execution*uint64(o.width) + uint64(i)
		ordinal := layer*o.shape.Experts + int(e)
		if before := last[ordinal]; before > 0 {
			o.next[before-1] = uint32(at)
		} else {
			o.keys[ordinal] = float64(at)
		}
		o.next = append(o.next, never)
		last[ordinal] = len(o.next)
	}
	return nil
}

// Routed tells of one layer execution, and that all its experts had their turn.
func (o *Optimum) Routed(layer int, choices []Choice) {
	if layer < 0 || layer >= o.shape.Layers {
		return
	}
	o.Begin()
	for _, e := range o.used.union(choices) {
		o.Turn(layer, e)
	}
}

// Begin starts a layer execution whose experts have their turns one by one: as a
// bound, since then one that had its turn may go for the next, and no order of
// loading them can have more hits. For those who do not call Routed.
func (o *Optimum) Begin() { o.now.Add(1) }

// Turn says that an expert of the execution under way had its turn: from now on
// its next use ranks it. Only the keys of its layer change. An expert that the
// shape does not have takes no turn.
func (o *Optimum) Turn(layer int, expert int32) {
	if layer < 0 || layer >= o.shape.Layers || expert < 0 || int(expert) >= o.shape.Experts {
		return
	}
	key := float64(neverUsed)
	if o.turn < len(o.next) && o.next[o.turn] != never {
		key = float64(o.next[o.turn])
	}
	o.turn++
	o.keys[layer*o.shape.Experts+int(expert)] = key
}

// Keys says of each expert when it is used next: the number of the layer execution
// times width, plus its place there.
func (o *Optimum) Keys(layer int) []float64 { return o.keys[layer*o.shape.Experts:][:o.shape.Experts] }

// Expect is the exact number of layer executions until the next use; one that is
// never used again is beyond all others.
func (o *Optimum) Expect(_ int, key float64) float64 {
	return math.Floor(key/float64(o.width)) - float64(o.now.Load())
}
