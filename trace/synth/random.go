package synth

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// random draws integers. It uses nothing of math/rand/v2 but PCG's numbers, which
// that package fixes for good.
type random struct{ pcg *rand.PCG }

func newRandom(seed, purpose uint64) random {
	return random{rand.NewPCG(seed, mix(purpose))}
}

// below is a number from 0 to n-1, each as likely but for n parts in 2^64.
func (r random) below(n uint64) uint64 {
	high, _ := bits.Mul64(r.pcg.Uint64(), n)
	return high
}

// chance is true with the probability p/2^32.
func (r random) chance(p uint64) bool { return r.pcg.Uint64()>>32 < p }

// share is a probability as chance takes it.
func share(p float64) uint64 { return uint64(math.Round(p * (1 << 32))) }

// mix scrambles words into one (the finalizer of SplitMix64, after each).
func mix(words ...uint64) uint64 {
	h := uint64(0)
	for _, w := range words {
		h = (h ^ w) + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// ranks draws ranks from 0 on by a Zipf law.
type ranks []uint64 // the weights up to and with each rank

func newRanks(n int, exponent float64) ranks {
	r := make(ranks, n)
	sum := uint64(0)
	for i := range r {
		sum += max(uint64(math.Round((1<<32)*math.Pow(float64(i+1), -exponent))), 1)
		r[i] = sum
	}
	return r
}

func (r ranks) draw(rng random) int {
	at := rng.below(r[len(r)-1])
	i, _ := slices.BinarySearch(r, at+1)
	return i
}

// weight is that of one rank.
func (r ranks) weight(i int) uint64 {
	if i == 0 {
		return r[0]
	}
	return r[i] - r[i-1]
}

// shuffled is 0 to n-1 in a random order.
func shuffled(n int, rng random) []int32 {
	s := make([]int32, n)
	for i := range s {
		j := int(rng.below(uint64(i + 1)))
		s[i] = s[j]
		s[j] = int32(i)
	}
	return s
}
