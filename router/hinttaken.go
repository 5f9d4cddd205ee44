package router

// hint is what was told of one layer's next execution, from one distance.
type hint struct {
	pass     int64 // that it is for
	from     int   // the layer it was made from
	listed   bool  // at least one expert was told
	compared bool  // inner holds what the inner forecast said beside it
	place    []uint8
	odds     []float32 // log odds that a token of the pass uses the expert
	margin   []float32 // by how much its log odds are above the K-th best, of any token
	inner    []float32 // log odds of the inner forecast
	chosen             // in the layer it was made from, if that is known

	best  []float32 // scratch: the highest log odds of one token, falling
	taken []bool    // scratch: ids of one token seen before
	miss  []float32 // scratch: scores less the truth
}

// chosen is what one token used in a layer: distinct experts, and their gate
// weights scaled to mean 1, half of which counts; 1 where they are not known.
type chosen struct {
	sources []int32
	gates   []float32
}

// Where an expert stands in a hint; of several tokens' hints the best counts.
const (
	placeFirst  = iota // among the first K
	placeSecond        // among the first 2K
	placeListed        // further behind
	placeAbsent        // not told
	placeCount
)

// oddsLimit clamps the log odds and margins of hints: beyond it they say no more.
const oddsLimit = 4

func newHint(experts int) *hint {
	return &hint{
		place: make([]uint8, experts), odds: make([]float32, experts), margin: make([]float32, experts),
		inner: make([]float32, experts), taken: make([]bool, experts), miss: make([]float32, experts),
	}
}

// start forgets what was told before.
func (k *hint) start(pass int64, from int) {
	k.pass, k.from, k.listed, k.compared = pass, from, false, false
	k.chosen.clear()
	for e := range k.place {
		k.place[e], k.odds[e], k.margin[e] = placeAbsent, -oddsLimit, -oddsLimit
	}
}

// join adds what was told of one token.
func (k *hint) join(ids []int32, p []float32, topK int) {
	clear(k.taken)
	k.rank(ids, p, topK)
	if len(k.best) == 0 {
		return
	}
	threshold := k.threshold(topK)
	clear(k.taken)
	at := 0
	for i, e := range ids {
		z, ok := k.told(ids, p, i, topK)
		if !ok {
			continue
		}
		k.taken[e] = true
		place := placeListed
		switch ahead := k.ahead(z, p == nil, at); {
		case ahead < topK:
			place = placeFirst
		case ahead < 2*topK:
			place = placeSecond
		}
		at++
		k.add(e, uint8(place), z, z-threshold)
	}
	k.listed, k.compared = true, false
}

// told is the i-th id's log odds, by its place if there are no probabilities;
// false for one that is to be left out.
func (k *hint) told(ids []int32, p []float32, i, topK int) (z float32, ok bool) {
	e := ids[i]
	if uint(e) >= uint(len(k.taken)) || k.taken[e] {
		return 0, false
	}
	if p == nil {
		return (float32(topK) - 0.5 - float32(i)) * 2 / float32(topK), true
	}
	if !(p[i] >= 0 && p[i] <= maxTold) {
		return 0, false
	}
	return logOdds(p[i]), true
}

// maxTold is the largest number that is still taken for a probability: one that
// was rounded up counts as 1, anything larger is none.
const maxTold = 1.01

// rank fills best with the log odds of the 2K most likely ones, in falling order.
func (k *hint) rank(ids []int32, p []float32, topK int) {
	most := 2 * topK
	k.best = k.best[:0]
	for i, e := range ids {
		z, ok := k.told(ids, p, i, topK)
		if !ok {
			continue
		}
		k.taken[e] = true
		at := len(k.best)
		for at > 0 && k.best[at-1] < z {
			at--
		}
		switch {
		case at >= most:
			continue
		case len(k.best) < most:
			k.best = append(k.best, 0)
		}
		copy(k.best[at+1:], k.best[at:])
		k.best[at] = z
	}
}

// threshold lies between the K-th and the next best; where no more than K were
// told, under the last of them.
func (k *hint) threshold(topK int) float32 {
	if len(k.best) > topK {
		return (k.best[topK-1] + k.best[topK]) / 2
	}
	return k.best[len(k.best)-1] - 1
}

// ahead is how many are told to be likelier than z; ids alone stand in order.
func (k *hint) ahead(z float32, ordered bool, at int) int {
	if ordered {
		return at
	}
	n := 0
	for n < len(k.best) && k.best[n] > z {
		n++
	}
	return n
}

// add joins one token's word on an expert with that of the tokens before.
func (k *hint) add(e int32, place uint8, z, margin float32) {
	z = min(max(z, -oddsLimit), oddsLimit)
	if k.place[e] != placeAbsent { // used unless no token uses it
		if none := (1 - sigmoid(z)) * (1 - sigmoid(k.odds[e])); none > 0 {
			z = min(logOdds(1-none), oddsLimit)
		}
	}
	k.odds[e] = z
	k.margin[e] = max(k.margin[e], min(margin, oddsLimit))
	k.place[e] = min(k.place[e], place)
}

// compare notes what the inner forecast says. p may be inner itself.
func (k *hint) compare(p []float32) {
	for e, x := range p {
		k.inner[e] = logOdds(x)
	}
	k.compared = true
}

func (c *chosen) clear() { c.sources, c.gates = c.sources[:0], c.gates[:0] }

// set takes over a choice of one of so many experts; of several tokens it takes
// none.
func (c *chosen) set(choices []Choice, experts int) {
	c.clear()
	if len(choices) != 1 {
		return
	}
	ids, weights := choices[0].Experts, choices[0].Weights
	var sum float32
	for i, e := range ids {
		if uint(e) >= uint(experts) || len(c.sources) >= maxSources {
			continue
		}
		gate := float32(1)
		if i < len(weights) {
			gate = weights[i]
		}
		c.sources, c.gates = append(c.sources, e), append(c.gates, gate)
		sum += gate
	}
	scale := float32(len(c.gates)) / sum
	for i, gate := range c.gates {
		c.gates[i] = 0.5 + 0.5*min(max(gate*scale, 0), float32(len(c.gates)))
		if c.gates[i] != c.gates[i] { // weights that are none
			c.gates[i] = 1
		}
	}
}

func (c *chosen) copyFrom(o *chosen) {
	c.sources, c.gates = append(c.sources[:0], o.sources...), append(c.gates[:0], o.gates...)
}
