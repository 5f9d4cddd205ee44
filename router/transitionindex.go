package router

import (
	"sync"

	"github.com/RoaringBitmap/roaring/v2"
)

// tokenIndex is what one layer chose for the last tokens, as an index: for each
// expert that may foretell, the set of the tokens that it came before. Tokens are
// numbered by the slot that they are in, from 1; the oldest gives its slot to the
// newest.
//
// Sets are changed in place. One that became empty would lose its memory, and one
// of more than 4096 members would change its form; so each has the member 0, which
// is no token, and there are at most maxIndexTokens tokens. Thus nothing is
// allocated once sets have been as large as they get.
type tokenIndex struct {
	mu    sync.Mutex
	slot  int      // that was filled last, 0 before the first
	count int      // slots filled
	rows  []uint16 // [slot-1][top-k], what the token chose; noExpert fills up
	use   []uint32 // by expert, tokens that chose it; nil until the layer is seen
	sets  [indexKinds][]*roaring.Bitmap
}

// What may foretell a token's choice.
const (
	indexNear  = iota // what it chose in the layer before
	indexAgain        // what the token before it in its sequence chose in the same layer
	indexKinds
)

// foretold is what came before a token's choice, by kind; nil where not known.
type foretold [indexKinds][]int32

// maxIndexTokens is what a roaring array container holds, less the member 0.
const maxIndexTokens = 4095

// openLocked makes the memory for so many entries of rows, unless it is there. Sets
// grow as they are used.
func (x *tokenIndex) openLocked(experts, entries int) {
	if x.use != nil {
		return
	}
	x.use = make([]uint32, experts)
	x.rows = make([]uint16, 0, entries)
	for kind := range x.sets {
		x.sets[kind] = make([]*roaring.Bitmap, experts)
		for e := range x.sets[kind] {
			x.sets[kind][e] = roaring.BitmapOf(0)
		}
	}
}

// addLocked enters a token of at most topK experts into an index of so many tokens.
func (x *tokenIndex) addLocked(chose []int32, from foretold, tokens, topK int) {
	if x.slot = x.slot%tokens + 1; x.slot > x.count {
		x.count++
		for range topK {
			x.rows = append(x.rows, noExpert)
		}
	} else {
		x.forgetLocked(topK)
	}
	row := x.rowLocked(x.slot, topK)
	for i, e := range chose {
		row[i] = uint16(e)
		x.use[e]++
	}
	for kind, experts := range from {
		for _, e := range experts {
			x.sets[kind][e].Add(uint32(x.slot))
		}
	}
}

// forgetLocked takes the token in the slot out.
func (x *tokenIndex) forgetLocked(topK int) {
	row := x.rowLocked(x.slot, topK)
	for i, e := range row {
		if e != noExpert {
			x.use[e]--
			row[i] = noExpert
		}
	}
	for _, sets := range x.sets {
		for _, set := range sets {
			set.Remove(uint32(x.slot))
		}
	}
}

func (x *tokenIndex) rowLocked(slot, topK int) []uint16 { return x.rows[(slot-1)*topK:][:topK] }

const (
	// indexPrior is how many tokens the rate of use in the whole index weighs as
	// against those that share a source.
	indexPrior = 4
	// indexGain is how many times more a token weighs for each further source that
	// it shares.
	indexGain = 4
	// indexQuorum is how many tokens are enough: if so many share two sources or more,
	// those that share one do not vote, and so on.
	indexQuorum = 64
)

// ballot is memory to count votes in.
type ballot struct {
	members []uint32  // of a set
	tokens  []uint32  // that have a vote
	shared  []uint8   // by slot, how many of the sources the token shares
	weight  []float32 // by slot
}

func newBallot(tokens int) ballot {
	return ballot{
		members: make([]uint32, tokens+1), tokens: make([]uint32, 0, tokens),
		shared: make([]uint8, tokens+1), weight: make([]float32, tokens+1),
	}
}

// summonLocked finds the tokens that share sources, and their weights: the sum of
// one over the number of tokens that share a source, times the gain for each beyond
// the first. It returns the weight of the rate of use in the whole index beside
// them.
func (x *tokenIndex) summonLocked(b *ballot, kind int, sources []int32) (prior float32) {
	b.tokens = b.tokens[:0]
	for _, s := range sources {
		set := x.sets[kind][s]
		members := b.members[:set.GetCardinality()]
		set.ToExistingArray(&members)
		members = members[1:] // 0 is no token
		share := 1 / (float32(len(members)) + indexPrior)
		prior += indexPrior * share
		for _, t := range members {
			if b.shared[t] == 0 {
				b.tokens = append(b.tokens, t)
			}
			b.shared[t]++
			b.weight[t] += share
		}
	}
	return prior
}

// elect leaves those tokens that share most sources, as few as make a quorum, and
// weighs them.
func (b *ballot) elect() {
	var sharing [maxSources + 2]int // by sources shared, tokens
	for _, t := range b.tokens {
		sharing[b.shared[t]]++
	}
	least := maxSources + 1
	for n := 0; least > 1 && n < indexQuorum; {
		least--
		n += sharing[least]
	}
	var gains [maxSources + 1]float32
	gain := float32(1)
	for shared := 1; shared <= maxSources; shared++ {
		gains[shared] = gain
		gain *= indexGain
	}
	elected := b.tokens[:0]
	for _, t := range b.tokens {
		if int(b.shared[t]) < least {
			b.weight[t], b.shared[t] = 0, 0
			continue
		}
		b.weight[t] *= gains[b.shared[t]]
		elected = append(elected, t)
	}
	b.tokens = elected
}

// voteLocked writes the probability that one token chooses each expert, given what
// foretells it; without that, the rate of use.
func (x *tokenIndex) voteLocked(b *ballot, kind int, sources []int32, topK int, dst []float32) {
	clear(dst)
	prior, total := float32(1), float32(0)
	if len(sources) > 0 {
		prior = x.summonLocked(b, kind, sources)
		b.elect()
		for _, t := range b.tokens {
			w := b.weight[t]
			b.weight[t], b.shared[t] = 0, 0
			total += w
			for _, e := range x.rowLocked(int(t), topK) {
				if e != noExpert {
					dst[e] += w
				}
			}
		}
	}
	even := float32(topK) / float32(len(dst))
	each, scale := prior/(float32(x.count)+1), 1/(total+prior)
	for e, n := range x.use {
		dst[e] = min((dst[e]+(float32(n)+even)*each)*scale, 1)
	}
}
