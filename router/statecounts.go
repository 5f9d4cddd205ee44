package router

import "fmt"

// Limits of what can have been learned, far beyond what ever is. They keep what a
// stranger's file holds from making sums that are not finite.
const (
	maxCount   = 1e9  // decayed passes, tokens, uses
	maxLearned = 1e6  // weights and biases, either sign
	maxSquares = 1e30 // of gradients
	maxLog     = 100  // logarithm of a probability, either sign
)

// countSlack is how far rounding may carry a decayed count of some passes beyond
// that of all passes, which decays with it.
const countSlack = 1.001

func layerPart(layer int) string { return fmt.Sprintf("layer %d", layer) }

// visit visits how often experts followed each other.
func (p *pairs) visit(s *State) {
	s.Floats(p.passes, 0, maxCount)
	for i, n := range p.passes {
		s.Floats(p.count[i*p.experts:][:p.experts], 0, n*countSlack)
	}
	if p.logs != nil {
		s.Floats(p.logs, -maxLog, maxLog)
		s.Uint32s(p.uses, 0, 1<<32-1)
	}
}
