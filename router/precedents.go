package router

import (
	"math"
	"math/bits"
)

// precedents remembers the latest passes of one layer: in what setting each began
// and what it chose. Those whose setting was most alike vote on what comes next:
// the nearest neighbours in the history of routing. They see what sums over single
// experts cannot: which choices go together.
//
// How many experts two settings share is counted for all passes at once: there is
// a set of passes for each expert in each role, a bit a pass, and the sets of the
// experts at hand are summed in bit-sliced counters. Not safe for concurrent use.
type precedents struct {
	experts int
	width   int      // experts remembered of a set, at most
	added   int      // passes, ever
	sets    []uint64 // [role][expert][word]: passes that had the expert in the role
	setting []uint16 // [pass][role][width]; noExpert is empty
	chosen  []uint16 // [pass][width]
	token   []int32  // [pass], or what stands for it; -1 where not known
	next    []int32  // [pass]: the same sequence's next one, -1 where there is none
	tally   [tallyBits][precedentWords]uint64
}

const (
	// maxPrecedents is how many passes of a layer are remembered.
	maxPrecedents  = 1024
	precedentWords = maxPrecedents / 64

	// tallyBits holds the largest likeness: 4 × maxPrecedentWidth.
	tallyBits         = 7
	maxPrecedentWidth = 31

	// maxVoters bounds the time of a forecast. Passes of equal likeness beyond it
	// are left out.
	maxVoters = 96
	// maxLevels is how far below the best likeness passes still vote.
	maxLevels = 5
	// likenessGain is how much more a pass counts for each step of likeness.
	likenessGain = 4
	// sameToken is how much more one with the same token counts.
	sameToken = 64

	// futurePasses and futureShare: what a voter's sequence used after the pass
	// that is forecast counts as well, less with each pass.
	futurePasses = 3
	futureShare  = 0.7
	leastFuture  = -4.6 // log ratio of what none of them used, and of less
)

// The roles of experts in a setting. The first counts twice.
const (
	roleFirst = iota
	roleSecond
	roleThird
	roleCount
)

// setting is what a pass is compared by.
type setting struct {
	sets  [roleCount][]int32 // each at most width experts; empty where not known
	token int32              // -1 where not known
}

// precedentWidth is how many experts a set may have to be remembered: a pass of
// many tokens is none that others resemble.
func precedentWidth(topK, experts int) int { return min(2*topK, experts, maxPrecedentWidth) }

func newPrecedents(experts, width int) *precedents {
	p := &precedents{
		experts: experts,
		width:   width,
		sets:    make([]uint64, roleCount*experts*precedentWords),
		setting: make([]uint16, maxPrecedents*roleCount*width),
		chosen:  make([]uint16, maxPrecedents*width),
		token:   make([]int32, maxPrecedents),
		next:    make([]int32, maxPrecedents),
	}
	for i := range p.setting {
		p.setting[i] = noExpert
	}
	for i := range p.chosen {
		p.chosen[i] = noExpert
	}
	for i := range p.next {
		p.token[i], p.next[i] = -1, -1
	}
	return p
}

// fits reports whether all sets are small enough to be remembered.
func (p *precedents) fits(s *setting, chosen []int32) bool {
	for _, set := range &s.sets {
		if len(set) > p.width {
			return false
		}
	}
	return len(chosen) > 0 && len(chosen) <= p.width
}

// add remembers a pass in the place of the oldest, and links it to the pass that
// its sequence made before (the result of that add, or 0). Of a pass that does not
// fit nothing is remembered, and the result is 0.
func (p *precedents) add(s *setting, chosen []int32, before int) int {
	if !p.fits(s, chosen) {
		return 0
	}
	slot := p.added % maxPrecedents
	p.forget(slot)
	for role, set := range &s.sets {
		row := p.settingRow(slot, role)
		for i, e := range set {
			row[i] = uint16(e)
			p.set(role, uint16(e))[slot/64] |= 1 << (slot % 64)
		}
	}
	row := p.chosen[slot*p.width:][:p.width]
	for i := range row {
		row[i] = noExpert
	}
	for i, e := range chosen {
		row[i] = uint16(e)
	}
	p.token[slot], p.next[slot] = s.token, -1
	if before > 0 && p.added-before < maxPrecedents-1 {
		p.next[(before-1)%maxPrecedents] = int32(slot)
	}
	p.added++
	return p.added
}

// forget empties a slot. Whatever links to it is older and thus empty already, but
// for a sequence that was away for long.
func (p *precedents) forget(slot int) {
	for role := range roleCount {
		row := p.settingRow(slot, role)
		for i, e := range row {
			if e != noExpert {
				p.set(role, e)[slot/64] &^= 1 << (slot % 64)
				row[i] = noExpert
			}
		}
	}
}

func (p *precedents) settingRow(slot, role int) []uint16 {
	return p.setting[(slot*roleCount+role)*p.width:][:p.width]
}

func (p *precedents) set(role int, e uint16) *[precedentWords]uint64 {
	return (*[precedentWords]uint64)(p.sets[(role*p.experts+int(e))*precedentWords:])
}

// count fills the tally with how alike each pass is: the experts that the settings
// share, those of the first role twice.
func (p *precedents) count(s *setting) {
	var rows [roleCount * maxPrecedentWidth]*[precedentWords]uint64
	n := 0
	for _, role := range [...]int{roleSecond, roleThird} {
		for _, e := range s.sets[role] {
			rows[n] = p.set(role, uint16(e))
			n++
		}
	}
	single := n
	for _, e := range s.sets[roleFirst] {
		rows[n] = p.set(roleFirst, uint16(e))
		n++
	}
	for w := range precedentWords {
		var a, b, c, d, e, f, g uint64 // the counters of 64 passes, lowest bit first
		for _, row := range rows[:single] {
			x := row[w]
			a, x = a^x, a&x
			b, x = b^x, b&x
			c, x = c^x, c&x
			d, x = d^x, d&x
			e, x = e^x, e&x
			f, x = f^x, f&x
			g ^= x
		}
		for _, row := range rows[single:n] {
			x := row[w]
			b, x = b^x, b&x
			c, x = c^x, c&x
			d, x = d^x, d&x
			e, x = e^x, e&x
			f, x = f^x, f&x
			g ^= x
		}
		p.tally[0][w], p.tally[1][w], p.tally[2][w], p.tally[3][w] = a, b, c, d
		p.tally[4][w], p.tally[5][w], p.tally[6][w] = e, f, g
	}
}

// best is the largest likeness of any pass.
func (p *precedents) best() (likeness int) {
	var among [precedentWords]uint64
	for w := range among {
		among[w] = ^uint64(0)
	}
	for i := tallyBits - 1; i >= 0; i-- {
		var any uint64
		for w, x := range &p.tally[i] {
			any |= x & among[w]
		}
		if any == 0 {
			continue
		}
		likeness |= 1 << i
		for w, x := range &p.tally[i] {
			among[w] &= x
		}
	}
	return likeness
}

// alike is the passes of word w that are exactly so alike.
func (p *precedents) alike(w, likeness int) uint64 {
	mask := ^uint64(0)
	for i := range tallyBits {
		x := p.tally[i][w]
		if likeness>>i&1 == 0 {
			x = ^x
		}
		mask &= x
	}
	return mask
}

// evidence writes what the passes most like this one say of each expert: the log
// likelihood ratio against the long-run frequency, P(expert | they), and, if future
// is not nil, the log ratio of what came in the passes after. All are 0 where
// nothing is alike.
func (p *precedents) evidence(s *setting, even int, long *longRun, ratio, best, future []float32) {
	clear(best)
	clear(future)
	top := 0
	if p.added > 0 && p.fits(s, s.sets[roleFirst]) {
		p.count(s)
		top = p.best()
	}
	if top == 0 {
		clear(ratio)
		return
	}
	total := p.vote(s, top, best, future)
	// The long-run frequency weighs as a pass that shares half of the first role.
	prior := powers(likenessGain, even-top)
	scale := 1 / (total + prior)
	least, share := fastLog(max(prior*scale, 1e-4)), prior*scale
	for e, q := range long.p {
		votes := best[e]
		best[e] = share*q + votes*scale
		ratio[e] = least
		if votes > 0 {
			ratio[e] = fastLog(max(best[e]*long.inverse[e], 1e-4))
		}
	}
	for e, x := range future {
		future[e] = leastFuture
		if x > 0 {
			future[e] = max(fastLog(x*scale*long.inverse[e]), leastFuture)
		}
	}
}

// vote adds up the choices of the passes most alike.
func (p *precedents) vote(s *setting, top int, votes, future []float32) (total float32) {
	voters := 0
	weight := float32(1)
	for likeness := top; likeness > max(top-maxLevels, 0) && voters < maxVoters; likeness-- {
		for w := range precedentWords {
			for mask := p.alike(w, likeness); mask != 0 && voters < maxVoters; mask &= mask - 1 {
				slot := w*64 + bits.TrailingZeros64(mask)
				x := weight
				if s.token >= 0 && p.token[slot] == s.token {
					x *= sameToken
				}
				total += x
				p.addChosen(slot, x, votes)
				if future != nil {
					p.addFuture(slot, x, future)
				}
				voters++
			}
		}
		weight /= likenessGain
	}
	return total
}

func (p *precedents) addChosen(slot int, x float32, votes []float32) {
	for _, e := range p.chosen[slot*p.width:][:p.width] {
		if e == noExpert {
			return
		}
		votes[e] += x
	}
}

func (p *precedents) addFuture(slot int, x float32, future []float32) {
	for range futurePasses {
		slot = int(p.next[slot])
		if slot < 0 {
			return
		}
		x *= futureShare
		p.addChosen(slot, x, future)
	}
}

// powers is base to the n, for n from -20 to 20.
func powers(base float32, n int) float32 {
	return float32(math.Pow(float64(base), float64(min(max(n, -20), 20))))
}
