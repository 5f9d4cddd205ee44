package train

import (
	"fmt"
	"math"
	"math/rand/v2"

	"outrider/router"
	"outrider/trace"
)

// part is some tokens of a trace, ascending.
type part struct {
	trace  *trace.Trace
	tokens []int
}

// split is what is trained on and what is held out.
type split struct {
	train, held                   []part
	trainTokens, heldTokens       int
	trainSequences, heldSequences int
	byTime                        bool
}

// Fewer tokens than these say nothing.
const (
	leastTrain = 32
	leastHeld  = 8
)

// newSplit holds out sequences, or the end of the only one.
func newSplit(traces []*trace.Trace, share float64, random *rand.Rand) (*split, error) {
	if err := checkTraces(traces); err != nil {
		return nil, err
	}
	type sequence struct {
		trace int
		seq   int64
	}
	var order []sequence
	seen := map[sequence]bool{}
	for i, t := range traces {
		for _, seq := range t.Seqs {
			if s := (sequence{i, seq}); !seen[s] {
				seen[s] = true
				order = append(order, s)
			}
		}
	}
	s := &split{}
	if s.byTime = len(order) == 1; s.byTime {
		s.trainSequences, s.heldSequences = 1, 1
	} else {
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		s.heldSequences = min(max(int(math.Round(share*float64(len(order)))), 1), len(order)-1)
		s.trainSequences = len(order) - s.heldSequences
	}
	held := map[sequence]bool{}
	for _, q := range order[:s.heldSequences] {
		held[q] = true
	}
	for i, t := range traces {
		last := int(float64(t.Len()) * (1 - share)) // by time
		s.add(t, func(token int) bool {
			if s.byTime {
				return token >= last
			}
			return held[sequence{i, t.Seqs[token]}]
		})
	}
	if s.trainTokens < leastTrain || s.heldTokens < leastHeld {
		return nil, fmt.Errorf("train: %w: %d are left for training and %d held out, want at least %d and %d", ErrTooLittle,
			s.trainTokens, s.heldTokens, leastTrain, leastHeld)
	}
	return s, nil
}

func (s *split) add(t *trace.Trace, held func(token int) bool) {
	train, out := part{trace: t}, part{trace: t}
	for i := range t.Len() {
		if held(i) {
			out.tokens = append(out.tokens, i)
		} else {
			train.tokens = append(train.tokens, i)
		}
	}
	s.train, s.held = append(s.train, train), append(s.held, out)
	s.trainTokens += len(train.tokens)
	s.heldTokens += len(out.tokens)
}

// checkTraces wants one or more of the same shape.
func checkTraces(traces []*trace.Trace) error {
	if len(traces) == 0 {
		return fmt.Errorf("train: %w: no trace was given", ErrTooLittle)
	}
	first := traces[0].Header
	if err := first.Shape.Validate(); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	for _, t := range traces[1:] {
		if s := t.Header.Shape; !s.Equal(first.Shape) {
			return fmt.Errorf("train: %w: the trace of %q has %d layers × %d experts, top %d, that of %q %d × %d, top %d", router.ErrShape,
				t.Header.Model, s.Layers, s.Experts, s.TopK, first.Model, first.Shape.Layers, first.Shape.Experts, first.Shape.TopK)
		}
	}
	return nil
}
