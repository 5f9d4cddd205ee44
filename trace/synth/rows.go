package synth

// place is what a row may depend on.
type place struct {
	domain, layer int
	token         int32
	below         []int32 // the choice of the layer before; nil in layer 0
	past          []int32 // this layer's choice for the token before; nil at the start
}

// rows draws rows.
type rows struct {
	kind        Kind
	o           *Options
	load        ranks
	orders      [][]order // by domain, made when first needed, and layer
	groups      int
	layer, past uint64  // the two pulls, as chances
	taken       []bool  // by expert: it stands in the row at hand
	deck        []int32 // uniform: the experts in some order
}

func newRows(kind Kind, o *Options) rows {
	r := rows{kind: kind, o: o}
	if kind == Uniform {
		r.deck = make([]int32, o.Shape.Experts)
		for i := range r.deck {
			r.deck[i] = int32(i)
		}
		return r
	}
	r.load = newRanks(o.Shape.Experts, o.Skew)
	r.orders = make([][]order, o.Domains)
	r.groups = o.Shape.Experts / max(min(3*o.Shape.TopK/2, o.Shape.Experts/2), 1)
	r.taken = make([]bool, o.Shape.Experts)
	if kind != Zipf {
		r.layer, r.past = share(o.LayerPull), share(o.PastPull)
	}
	return r
}

// draw fills a row with distinct experts.
func (r *rows) draw(rng random, at *place, row []int32) {
	if r.kind == Uniform {
		r.deal(rng, row)
		return
	}
	order := r.order(at.domain, at.layer)
	for i := range row {
		row[i] = r.next(rng, at, order)
		r.taken[row[i]] = true
	}
	for _, e := range row {
		r.taken[e] = false
	}
}

// order is how popular the experts of a layer are.
type order struct {
	experts []int32 // by rank, the most popular first
	ranks   []int32 // by expert
}

func (r *rows) order(domain, layer int) order {
	if r.orders[domain] == nil {
		rng := newRandom(r.o.Seed, mix(purposeOrder, uint64(domain)))
		layers := make([]order, r.o.Shape.Layers)
		for l := range layers {
			experts := shuffled(r.o.Shape.Experts, rng)
			ranks := make([]int32, len(experts))
			for rank, e := range experts {
				ranks[e] = int32(rank)
			}
			layers[l] = order{experts, ranks}
		}
		r.orders[domain] = layers
	}
	return r.orders[domain][layer]
}

// deal takes the top of a deck that is shuffled only as far as needed: every row
// is equally likely whatever the order was.
func (r *rows) deal(rng random, row []int32) {
	for i := range row {
		j := i + int(rng.below(uint64(len(r.deck)-i)))
		r.deck[i], r.deck[j] = r.deck[j], r.deck[i]
		row[i] = r.deck[i]
	}
}

// maxTries is how often an expert is drawn that is taken already, before the
// rest is searched: with a steep load or a long row nearly all draws would be.
const maxTries = 32

// next draws an expert that the row does not have.
func (r *rows) next(rng random, at *place, order order) int32 {
	for range maxTries {
		e := r.one(rng, at, order)
		if !r.taken[e] {
			return e
		}
	}
	total := uint64(0)
	for rank, e := range order.experts {
		if !r.taken[e] {
			total += r.load.weight(rank)
		}
	}
	left := rng.below(total)
	for rank, e := range order.experts {
		if r.taken[e] {
			continue
		}
		w := r.load.weight(rank)
		if left < w {
			return e
		}
		left -= w
	}
	panic("synth: a row of more experts than there are") // layout.Shape.Validate refuses that
}

// one draws an expert, taken or not.
func (r *rows) one(rng random, at *place, order order) int32 {
	if r.layer|r.past != 0 {
		switch u := rng.pcg.Uint64() >> 32; {
		case u < r.layer:
			return r.follow(rng, at, order)
		case u < r.layer+r.past && at.past != nil:
			if rng.below(2) == 0 {
				return at.past[rng.below(uint64(len(at.past)))]
			}
			return r.member(rng, order, r.group(order, at.past[0])+1)
		}
	}
	return order.experts[r.load.draw(rng)]
}

// tokenLayers is how many layers the token's id has a say in.
const tokenLayers = 3

// follow draws from the group that the layer before, or the token's id, leads to.
func (r *rows) follow(rng random, at *place, order order) int32 {
	if at.layer == 0 || at.layer < tokenLayers && rng.below(1<<at.layer) == 0 {
		return r.member(rng, order, int(mix(r.o.Seed, purposeToken, uint64(at.token))%uint64(r.groups)))
	}
	return r.member(rng, order, r.group(r.order(at.domain, at.layer-1), at.below[0]))
}

// group is that of an expert: ranks are dealt to the groups in turn, so that each
// has popular experts and others.
func (r *rows) group(order order, expert int32) int { return int(order.ranks[expert]) % r.groups }

// member draws an expert of a group.
func (r *rows) member(rng random, order order, group int) int32 {
	group %= r.groups
	size := (len(order.experts) - group + r.groups - 1) / r.groups
	return order.experts[group+r.groups*int(rng.below(uint64(size)))]
}
