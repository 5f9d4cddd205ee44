package router

// tokenTable remembers which experts one layer used for each token: a hashed
// table of fixed size with decayed counts of the few experts a token used
// most. Not safe for concurrent use.
type tokenTable struct {
	width  int       // experts remembered a slot
	mask   uint32    // slots - 1
	key    []int32   // token of a slot + 1; 0 is empty
	vigour []float32 // how well the slot's token defends it
	total  []float32 // decayed number of times the token was seen
	expert []uint16  // [slot][width]; noExpert is empty
	count  []float32 // [slot][width]
}

// noExpert is beyond any expert that pairs can be counted for (maxPairs).
const noExpert = 0xffff

const (
	tokenDecay = 0.95 // of a token's counts, each time it is seen
	tokenPrior = 0.5  // weight of the long-run frequency against a token's counts
)

// newTokenTable makes a table of slots (a power of two) of width experts.
func newTokenTable(slots, width int) *tokenTable {
	t := &tokenTable{
		width:  width,
		mask:   uint32(slots - 1),
		key:    make([]int32, slots),
		vigour: make([]float32, slots),
		total:  make([]float32, slots),
		expert: make([]uint16, slots*width),
		count:  make([]float32, slots*width),
	}
	for i := range t.expert {
		t.expert[i] = noExpert
	}
	return t
}

// mix spreads a token id over 32 bits.
func mix(x uint32) uint32 {
	x *= 0x9E3779B1
	x ^= x >> 15
	x *= 0x85EBCA77
	return x ^ x>>13
}

func (t *tokenTable) slot(token int32) int { return int(mix(uint32(token)) & t.mask) }

// add counts that token used these experts.
func (t *tokenTable) add(token int32, experts []int32) {
	s := t.slot(token)
	if t.key[s] != token+1 {
		if t.vigour[s] > 1 {
			t.vigour[s]--
			return
		}
		t.claim(s, token)
	}
	t.vigour[s] = min(t.vigour[s]+1, 64)
	t.total[s] = t.total[s]*tokenDecay + 1
	ids, counts := t.slotRow(s)
	for i := range counts {
		counts[i] *= tokenDecay
	}
	for _, x := range experts {
		e := uint16(x)
		place, least := 0, float32(0)
		for i, id := range ids {
			if id == e {
				place = i
				break
			}
			if i == 0 || counts[i] < least {
				place, least = i, counts[i]
			}
		}
		if ids[place] != e {
			ids[place], counts[place] = e, 0
		}
		counts[place]++
	}
}

func (t *tokenTable) slotRow(s int) ([]uint16, []float32) {
	return t.expert[s*t.width : (s+1)*t.width], t.count[s*t.width : (s+1)*t.width]
}

func (t *tokenTable) claim(s int, token int32) {
	t.key[s], t.vigour[s], t.total[s] = token+1, 0, 0
	ids, counts := t.slotRow(s)
	for i := range ids {
		ids[i], counts[i] = noExpert, 0
	}
}

// find returns the slot of a token, false where the token is not known. A nil
// table knows none.
func (t *tokenTable) find(token int32) (slot int, ok bool) {
	if t == nil || token < 0 {
		return 0, false
	}
	slot = t.slot(token)
	return slot, t.key[slot] == token+1
}

// evidence writes what a token says of each expert: the log likelihood ratio
// against the long-run frequency and P(expert | token); both 0 where the token
// is not known. It may be called on a nil table.
func (t *tokenTable) evidence(token int32, long *longRun, ratio, best []float32) {
	slot, ok := t.find(token)
	if !ok {
		clear(ratio)
		clear(best)
		return
	}
	scale := 1 / (t.total[slot] + tokenPrior)
	floor, share := fastLog(tokenPrior*scale), tokenPrior*scale
	for e, p := range long.p {
		ratio[e] = floor
		best[e] = share * p
	}
	ids, counts := t.slotRow(slot)
	for i, e := range ids {
		if e != noExpert {
			r := (counts[i]*long.inverse[e] + tokenPrior) * scale
			ratio[e] = fastLog(r)
			best[e] = r * long.p[e]
		}
	}
}

// leaves multiplies absent by the probability that the token does not use each
// expert. prior is how often any token does.
func (t *tokenTable) leaves(token int32, prior, absent []float32) {
	slot, ok := t.find(token)
	if !ok {
		for e, p := range prior {
			absent[e] *= 1 - min(p, 1)
		}
		return
	}
	scale := 1 / (t.total[slot] + tokenPrior)
	share := tokenPrior * scale
	for e, p := range prior {
		absent[e] *= 1 - min(share*p, 1)
	}
	ids, counts := t.slotRow(slot)
	for i, e := range ids {
		if e != noExpert {
			rest := 1 - min(share*prior[e], 1)
			absent[e] *= max(1-(counts[i]*scale+share*prior[e]), 0) / max(rest, 1e-6)
		}
	}
}
