package experts

import (
	"math"

	"outrider/layout"
)

// head remembers who of a layer goes first, so that a victim is found by
// looking at one expert a layer. It is looked for again only when the keys
// changed or when the one it names was pinned, evicted or protected.
type head struct {
	first int32 // evictable expert with the largest key; none
	cold  int32 // the same among those that are not protected; none
	count int32 // evictable experts of the layer
	dirty bool
	until int64 // step at which a protected one of the layer turns cold
}

const none = -1

// makeRoom evicts until need bytes fit, or evicts nothing and says why not.
// The victims are in t.victims.
func (t *Table) makeRoom(need int64, class Class, own float64) error {
	t.victims = t.victims[:0]
	free := t.budget - t.used()
	if need > free+t.count.evictable {
		return ErrNoRoom
	}
	// What is on its way back to the system comes without evicting for it.
	if need > free && need <= free+t.count.held {
		return ErrNoRoom
	}
	if class == Speculative && t.count.speculative+need > t.budget-t.count.stray-t.floor {
		return ErrNoRoom
	}
	for need > free {
		victim, expect, ok := t.best(class)
		if !ok || (class == Speculative && !(expect > own)) {
			t.unchoose()
			return ErrNotWorth
		}
		t.choose(victim)
		free += t.bytes[victim.Layer]
	}
	var mark flags
	if class == Speculative {
		mark = thrown
	}
	for _, v := range t.victims {
		t.entries[t.shape.Ordinal(v)].flags &^= chosen
		t.join(v)
		t.drop(v, mark)
		if mark != 0 {
			t.entries[t.shape.Ordinal(v)].used = t.step
		}
	}
	return nil
}

// choose sets a victim aside while others are sought.
func (t *Table) choose(id layout.ExpertID) {
	t.leave(id)
	t.entries[t.shape.Ordinal(id)].flags |= chosen
	t.victims = append(t.victims, id)
}

// unchoose puts all chosen victims back.
func (t *Table) unchoose() {
	for _, v := range t.victims {
		t.entries[t.shape.Ordinal(v)].flags &^= chosen
		t.join(v)
	}
	t.victims = t.victims[:0]
}

// shrink evicts while more is charged than the budget allows.
func (t *Table) shrink() []layout.ExpertID {
	if t.count.live+t.count.stray <= t.budget {
		return nil
	}
	t.victims = t.victims[:0]
	for t.count.live+t.count.stray > t.budget {
		victim, _, ok := t.best(Demand)
		if !ok {
			break
		}
		t.drop(victim, 0)
		t.victims = append(t.victims, victim)
	}
	return t.victims
}

// drop makes an evictable expert absent.
func (t *Table) drop(id layout.ExpertID, mark flags) {
	t.leave(id)
	e := &t.entries[t.shape.Ordinal(id)]
	if e.flags&unused != 0 {
		t.count.wasted++
	}
	e.state = absent
	e.flags = mark
	t.count.live -= t.bytes[id.Layer]
	t.count.residents--
	t.count.evictions++
}

// best is the evictable expert that is expected last, and when; for a
// speculative read, among those that are not protected. Ties go to the lower
// layer, then the lower index.
func (t *Table) best(class Class) (id layout.ExpertID, expect float64, ok bool) {
	for l := range t.heads {
		h := &t.heads[l]
		if h.count == 0 {
			continue
		}
		if h.dirty || (class == Speculative && t.step >= h.until) {
			t.scan(l)
		}
		i := h.first
		if class == Speculative {
			i = h.cold
		}
		if i == none {
			continue
		}
		x := t.expect(l, t.keys[l*t.shape.Experts+int(i)])
		if !ok || x > expect {
			id, expect, ok = layout.ExpertID{Layer: int32(l), Index: i}, x, true
		}
	}
	return id, expect, ok
}

func (t *Table) expect(layer int, key float64) float64 {
	if t.policy == nil {
		return float64(t.step) + key
	}
	if x := t.policy.Expect(layer, key); !math.IsNaN(x) {
		return x
	}
	return math.Inf(1)
}

// scan finds a layer's head again.
func (t *Table) scan(layer int) {
	h := &t.heads[layer]
	h.first, h.cold, h.until, h.dirty = none, none, math.MaxInt64, false
	keys := t.layerKeys(layer)
	entries := t.entries[layer*t.shape.Experts:][:len(keys)]
	var firstKey, coldKey float64
	for i := range entries {
		e := &entries[i]
		if e.state != resident || e.pins != 0 || e.flags&chosen != 0 {
			continue
		}
		k := keys[i]
		if h.first == none || k > firstKey {
			h.first, firstKey = int32(i), k
		}
		if end := e.used + t.protect; end > t.step {
			h.until = min(h.until, end)
		} else if h.cold == none || k > coldKey {
			h.cold, coldKey = int32(i), k
		}
	}
}

// join notes that an expert became evictable.
func (t *Table) join(id layout.ExpertID) {
	h := &t.heads[id.Layer]
	h.count++
	t.count.evictable += t.bytes[id.Layer]
	if h.dirty {
		return
	}
	keys := t.layerKeys(int(id.Layer))
	if goesBefore(keys, id.Index, h.first) {
		h.first = id.Index
	}
	e := &t.entries[t.shape.Ordinal(id)]
	if end := e.used + t.protect; end > t.step {
		h.until = min(h.until, end)
	} else if goesBefore(keys, id.Index, h.cold) {
		h.cold = id.Index
	}
}

// leave notes that an expert is no longer evictable.
func (t *Table) leave(id layout.ExpertID) {
	h := &t.heads[id.Layer]
	h.count--
	t.count.evictable -= t.bytes[id.Layer]
	if h.first == id.Index || h.cold == id.Index {
		h.dirty = true
	}
}

// goesBefore reports whether expert a is evicted before b.
func goesBefore(keys []float64, a, b int32) bool {
	if b == none {
		return true
	}
	return keys[a] > keys[b] || (keys[a] == keys[b] && a < b)
}

// touch is the recency ranking: the key falls with each use, so that an expert
// that is not its layer's head stays none.
func (t *Table) touch(id layout.ExpertID) {
	if t.policy != nil {
		return
	}
	t.order++
	t.keys[t.shape.Ordinal(id)] = -float64(t.step) - t.order/(1<<20)
	if h := &t.heads[id.Layer]; h.first == id.Index || h.cold == id.Index {
		h.dirty = true
	}
}

func (t *Table) layerKeys(layer int) []float64 {
	return t.keys[layer*t.shape.Experts:][:t.shape.Experts]
}
