package router

import (
	"math"

	"outrider/layout"
)

// onlineRevision changes with the fields below, or what they mean.
const onlineRevision = 2

// Shape is the shape of the model that is forecast.
func (o *Online) Shape() layout.Shape { return o.shape }

// maxSavedTable bounds the entries of a token table, which a stranger's file could
// otherwise make large: forty times what is the default for 128 experts, top 8.
const maxSavedTable = 1 << 22

// visit visits the options, as they are once defaults are filled in.
func (o *OnlineOptions) visit(s *State) {
	s.Int(&o.TokenSlots, 1, maxTokenSlots)
	s.Int(&o.TokenWidth, 1, maxTokenWidth)
	s.Int(&o.MaxTies, math.MinInt32, math.MaxInt32)
	if n := o.TokenSlots * o.TokenWidth; n > maxSavedTable {
		s.Refuse("token tables of %d × %d entries, want at most %d in all", o.TokenSlots, o.TokenWidth, maxSavedTable)
	}
}

// VisitState visits what was learned of each layer, under its lock.
func (o *Online) VisitState(s *State) {
	visitOptions(s, o.opts, (*OnlineOptions).visit)
	for l := range o.layers {
		y := &o.layers[l]
		s.Section(layerPart(l), &y.mu, func() {
			s.Revision(onlineRevision)
			o.visitCommon(s, &y.common)
			for i := range y.phases {
				o.visitPhase(s, l, &y.phases[i])
			}
		})
	}
}

func (o *Online) visitCommon(s *State, c *commonState) {
	n := o.shape.Experts
	if !s.Has(c.use != nil, 4*n) {
		return
	}
	if c.use == nil {
		c.use = make([]float32, n)
	}
	s.Floats(c.use, 0, maxCount)
	s.Float(&c.seen, 0, maxCount)
	o.visitTable(s, &c.tokens)
	o.visitTable(s, &c.grams)
}

func (o *Online) visitPhase(s *State, layer int, p **phaseState) {
	if !s.Has(*p != nil, o.phaseBytes(layer)) {
		return
	}
	if *p == nil {
		*p = o.newPhase(layer)
	}
	y := *p
	s.Floats(y.use, 0, maxCount)
	s.Float(&y.seen, 0, maxCount)
	for i := range y.follow {
		y.follow[i].visit(s)
	}
	if layer > 0 {
		o.visitTable(s, &y.opening)
		o.visitTable(s, &y.pair)
		y.passes.visit(s)
	}
	y.again.visit(s)
	for i := range y.heads {
		y.heads[i].visit(s)
	}
	y.outlook.visit(s)
	s.Int(&y.version, 0, math.MaxInt)
	y.long.visit(s)
}

// phaseBytes is about what a phase takes in a file, and not more.
func (o *Online) phaseBytes(layer int) int {
	matrices := 2 * sourceCount // counts and logs
	if o.shape.Experts <= o.opts.MaxTies {
		matrices += 1 + 2 + 3
	}
	bytes := 4 * matrices * o.shape.Experts * o.shape.Experts
	if layer > 0 {
		bytes += 2 * o.tableBytes()
	}
	return bytes
}

func (o *Online) tableBytes() int { return o.opts.TokenSlots * (12 + 6*o.opts.TokenWidth) }

func (o *Online) visitTable(s *State, t **tokenTable) {
	if !s.Has(*t != nil, o.tableBytes()) {
		return
	}
	if *t == nil {
		*t = newTokenTable(o.opts.TokenSlots, o.opts.TokenWidth)
	}
	y := *t
	s.Int32s(y.key, math.MinInt32, math.MaxInt32)
	s.Floats(y.vigour, 0, maxCount)
	s.Floats(y.total, 0, maxCount)
	s.Uint16s(y.expert, 0, noExpert)
	for i, e := range y.expert {
		if e != noExpert && int(e) >= o.shape.Experts {
			s.Refuse("entry %d names expert %d of %d", i, e, o.shape.Experts)
			return
		}
	}
	s.Floats(y.count, 0, maxCount)
}

func (h *head) visit(s *State) {
	s.Floats(h.weight, -maxLearned, maxLearned)
	s.Floats(h.speed, math.SmallestNonzeroFloat32, maxSquares)
	s.Floats(h.bias, -maxLearned, maxLearned)
	for i, ties := range h.ties {
		s.Floats(ties, -maxLearned, maxLearned)
		s.Uint32s(h.uses[i], 0, maxUses)
	}
}

func (l *longRun) visit(s *State) {
	known := s.Has(l.known, 4*len(l.p))
	if !known {
		return
	}
	s.Int(&l.version, 0, math.MaxInt)
	s.Floats(l.p, leastFrequency, 2)
	if s.Loading() {
		l.known = true
		l.derive()
	}
}

// leastFrequency is under any that can be, and far from what has no inverse.
const leastFrequency = 1e-12

// visit visits the passes; which experts had which role is made anew from them.
func (p *precedents) visit(s *State) {
	s.Int(&p.added, 0, math.MaxInt/2)
	s.Uint16s(p.setting, 0, noExpert)
	s.Uint16s(p.chosen, 0, noExpert)
	s.Int32s(p.token, -1, math.MaxInt32)
	s.Int32s(p.next, -1, maxPrecedents-1)
	if !s.Loading() {
		return
	}
	for i, e := range p.chosen {
		if e != noExpert && int(e) >= p.experts {
			s.Refuse("entry %d names expert %d of %d", i, e, p.experts)
			return
		}
	}
	for slot := range maxPrecedents {
		for role := range roleCount {
			for i, e := range p.settingRow(slot, role) {
				switch {
				case e == noExpert:
				case int(e) >= p.experts:
					s.Refuse("entry %d of pass %d names expert %d of %d", i, slot, e, p.experts)
					return
				default:
					p.set(role, e)[slot/64] |= 1 << (slot % 64)
				}
			}
		}
	}
}
