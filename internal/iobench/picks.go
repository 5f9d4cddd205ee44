package iobench

import "math/rand/v2"

// picks draws experts of one layer, each as likely as any other but those drawn
// lately: they may still be in memory, and a batch is to be read whole.
type picks struct {
	random *rand.Rand
	pool   []int32 // may be drawn
	recent []int32 // may not, in the order drawn
	oldest int
}

// newPicks draws from so many experts and repeats none within the number of recent
// draws.
func newPicks(experts, recent int, seed uint64) *picks {
	p := &picks{random: rand.New(rand.NewPCG(seed, 0x9d7a))}
	for e := range experts {
		p.pool = append(p.pool, int32(e))
	}
	p.random.Shuffle(experts, func(i, j int) { p.pool[i], p.pool[j] = p.pool[j], p.pool[i] })
	p.pool, p.recent = p.pool[recent:], p.pool[:recent:recent]
	return p
}

func (p *picks) next() int32 {
	at := p.random.IntN(len(p.pool))
	e := p.pool[at]
	if len(p.recent) > 0 {
		p.pool[at], p.recent[p.oldest] = p.recent[p.oldest], e
		p.oldest = (p.oldest + 1) % len(p.recent)
	}
	return e
}
