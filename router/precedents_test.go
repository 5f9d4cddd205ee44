package router

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// plainPass is a remembered pass, kept plainly.
type plainPass struct {
	setting setting
	chosen  []int32
	next    int // index of the same sequence's next pass, -1 for none
}

// common counts the experts that are in both sets.
func common(a, b []int32) (n int) {
	for _, e := range a {
		if slices.Contains(b, e) {
			n++
		}
	}
	return n
}

func likeness(a, b *setting) int {
	return 2*common(a.sets[roleFirst], b.sets[roleFirst]) + common(a.sets[roleSecond], b.sets[roleSecond]) +
		common(a.sets[roleThird], b.sets[roleThird])
}

// plainVotes is what precedents.vote should come to, as long as voters are not
// too many.
func plainVotes(past []plainPass, s *setting, experts int) (votes, future []float32, total float32) {
	votes, future = make([]float32, experts), make([]float32, experts)
	top := 0
	for i := range past {
		top = max(top, likeness(&past[i].setting, s))
	}
	for i := range past {
		alike := likeness(&past[i].setting, s)
		if alike == 0 || alike <= top-maxLevels {
			continue
		}
		x := powers(likenessGain, alike-top)
		if s.token >= 0 && past[i].setting.token == s.token {
			x *= sameToken
		}
		total += x
		for _, e := range past[i].chosen {
			votes[e] += x
		}
		for at, n := past[i].next, 0; at >= 0 && n < futurePasses; at, n = past[at].next, n+1 {
			x *= futureShare
			for _, e := range past[at].chosen {
				future[e] += x
			}
		}
	}
	return votes, future, total
}

func randomSet(rng *rand.Rand, experts, n int) []int32 {
	var set []int32
	for len(set) < n {
		if e := rng.Int32N(int32(experts)); !slices.Contains(set, e) {
			set = append(set, e)
		}
	}
	return set
}

// TestPrecedentsAgainstBruteForce fills the memory more than twice, from two
// sequences that take turns.
func TestPrecedentsAgainstBruteForce(t *testing.T) {
	const experts, k = 40, 3
	rng := rand.New(rand.NewPCG(1, 2))
	p := newPrecedents(experts, precedentWidth(k, experts))
	var past []plainPass
	var place, index [2]int
	for n := range 2*maxPrecedents + 200 {
		s := setting{token: rng.Int32N(200) - 1}
		for role := range s.sets {
			s.sets[role] = randomSet(rng, experts, rng.IntN(k+1))
		}
		if n%97 == 0 || n > 2*maxPrecedents+150 {
			first := max(len(past)-maxPrecedents, 0)
			window := slices.Clone(past[first:])
			for i := range window {
				if window[i].next >= 0 {
					window[i].next -= first
				}
			}
			checkVotes(t, n, p, window, &s, experts)
		}
		seq := n % 2
		chosen := randomSet(rng, experts, k)
		before := place[seq]
		place[seq] = p.add(&s, chosen, before)
		if before > 0 {
			past[index[seq]].next = len(past)
		}
		index[seq] = len(past)
		past = append(past, plainPass{setting: s, chosen: chosen, next: -1})
		if t.Failed() {
			return
		}
	}
}

func checkVotes(t *testing.T, n int, p *precedents, past []plainPass, s *setting, experts int) {
	t.Helper()
	wantVotes, wantFuture, wantTotal := plainVotes(past, s, experts)
	votes, future := make([]float32, experts), make([]float32, experts)
	p.count(s)
	top := p.best()
	voters := 0
	for i := range past {
		if alike := likeness(&past[i].setting, s); alike > 0 && alike > top-maxLevels {
			voters++
		}
	}
	if top == 0 || voters > maxVoters {
		return // some are left out
	}
	total := p.vote(s, top, votes, future)
	if math.Abs(float64(total-wantTotal)) > 1e-3*float64(wantTotal) {
		t.Errorf("pass %d: got %v votes in all, want %v", n, total, wantTotal)
	}
	for e := range votes {
		if math.Abs(float64(votes[e]-wantVotes[e])) > 1e-3 || math.Abs(float64(future[e]-wantFuture[e])) > 1e-3 {
			t.Errorf("pass %d, expert %d: got %v now and %v later, want %v and %v", n, e, votes[e], future[e], wantVotes[e], wantFuture[e])
		}
	}
}

// TestPrecedentsOfPairs: what single experts do not tell, two of them together do.
func TestPrecedentsOfPairs(t *testing.T) {
	const experts = 16
	p := newPrecedents(experts, 4)
	long := newLongRun(experts)
	for e := range long.p {
		long.p[e] = 1.0 / experts
	}
	long.derive()
	for n := range 400 {
		a, b := int32(n%2), int32(2+n/2%2)
		s := setting{token: -1, sets: [roleCount][]int32{roleFirst: {a, b}}}
		p.add(&s, []int32{8 + (a ^ (b - 2))}, 0) // exclusive or
	}
	ratio, best := make([]float32, experts), make([]float32, experts)
	for n := range 4 {
		a, b := int32(n%2), int32(2+n/2%2)
		s := setting{token: -1, sets: [roleCount][]int32{roleFirst: {a, b}}}
		p.evidence(&s, 2, &long, ratio, best, nil)
		want, other := 8+(a^(b-2)), 8+1-(a^(b-2))
		if best[want] < 0.5 || best[want] < 3*best[other] || ratio[want] < 1 {
			t.Errorf("after %d and %d: got P %v of %d and %v of %d, want the first far larger", a, b, best[want], want, best[other], other)
		}
	}
}

func TestPrecedentsLeaveOutWideSets(t *testing.T) {
	p := newPrecedents(64, precedentWidth(2, 64))
	s := setting{token: -1, sets: [roleCount][]int32{roleFirst: {1, 2, 3, 4, 5}}}
	if got := p.add(&s, []int32{1}, 0); got != 0 || p.added != 0 {
		t.Errorf("a setting of five: got %d and %d passes, want none", got, p.added)
	}
	s.sets[roleFirst] = s.sets[roleFirst][:4]
	if got := p.add(&s, []int32{1, 2, 3, 4, 5}, 0); got != 0 {
		t.Errorf("a choice of five: got %d, want 0", got)
	}
	if got := p.add(&s, []int32{1, 2, 3, 4}, 0); got != 1 {
		t.Errorf("a choice of four: got %d, want 1", got)
	}
}
