package experts

import "fmt"

// Policy ranks resident experts for eviction: the one whose next use is
// expected last goes first.
type Policy interface {
	// Keys holds one number for each expert of a layer: the larger, the
	// sooner it is evicted among the experts of its layer. It is called by
	// NewTable and by Invalidate only, on the goroutine that calls those, and
	// the values are copied, so the policy may change its slice afterwards.
	// An expert without a key, or with NaN, goes first.
	Keys(layer int) []float64
	// Expect turns a key into layer executions until the expert's next use,
	// as seen from now: increasing in key. The Cache calls it from any
	// goroutine with its lock held: it must be quick, must not wait (also not
	// for a lock that somebody holds while calling the Cache) and must not
	// call the Cache.
	Expect(layer int, key float64) float64
}

// Class says who wants an expert.
type Class uint8

const (
	// Demand: the router chose the expert.
	Demand Class = iota
	// Speculative: a forecast expects the expert.
	Speculative
)

// String is the class's word in messages.
func (c Class) String() string {
	switch c {
	case Demand:
		return "demand"
	case Speculative:
		return "speculative"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

// Outcome is what a demand found.
type Outcome uint8

const (
	// Miss: the expert is neither resident nor in flight.
	Miss Outcome = iota
	// Hit: resident, and used before or brought by a demand.
	Hit
	// HitUseful: resident thanks to a speculative read; this is its first use.
	HitUseful
	// Filling: in flight for a demand.
	Filling
	// FillingLate: in flight for a forecast, and not here in time. From now on
	// the fill counts as a demand's.
	FillingLate
	// Refused: the cache is closed, or the shape has no such expert.
	Refused
)

// Resident reports whether the expert was in memory: Hit or HitUseful.
func (o Outcome) Resident() bool { return o == Hit || o == HitUseful }

// String is the outcome's word in messages.
func (o Outcome) String() string {
	words := [...]string{"miss", "hit", "hit useful", "filling", "filling late", "refused"}
	if int(o) < len(words) {
		return words[o]
	}
	return fmt.Sprintf("outcome %d", uint8(o))
}
