package experts

import (
	"fmt"
	"slices"

	"outrider/layout"

	"pgregory.net/rapid"
)

// model is what a Table must do, written for reading: every question looks at
// every expert.
type model struct {
	shape   layout.Shape
	policy  *fixedPolicy
	keys    [][]float64 // as of the last Invalidate
	bytes   []int64
	budget  int64
	held    int64
	strays  []int // layers of what is astray
	protect int64
	step    int64
	peak    int64
	experts map[layout.ExpertID]*modelExpert

	evictions, useful, wasted, displaced int64
}

type modelExpert struct {
	state          string // "", "filling", "resident"
	pins           int
	unused, thrown bool
	used           int64
}

func newModel(s layout.Shape, protect int) *model {
	m := &model{shape: s, policy: newFixedPolicy(s), bytes: make([]int64, s.Layers), protect: int64(protect)}
	m.experts = map[layout.ExpertID]*modelExpert{}
	m.keys = make([][]float64, s.Layers)
	for o := range s.Count() {
		m.experts[s.ID(o)] = &modelExpert{used: -1000}
	}
	return m
}

// redraw gives layers from to below to new keys and distances.
func (m *model) redraw(r *rapid.T, from, to int) {
	for l := from; l < to; l++ {
		for i := range m.policy.keys[l] {
			m.policy.keys[l][i] = float64(rapid.IntRange(0, 5).Draw(r, "key"))
		}
		m.keys[l] = slices.Clone(m.policy.keys[l])
	}
	l := rapid.IntRange(0, m.shape.Layers-1).Draw(r, "moved layer")
	m.policy.distance[l] = float64(rapid.IntRange(0, 9).Draw(r, "distance"))
}

func (m *model) expect(e layout.ExpertID) float64 {
	return m.policy.distance[e.Layer] + m.keys[e.Layer][e.Index]
}

func (m *model) sum(f func(*modelExpert) bool) (n int64) {
	for e, x := range m.experts {
		if f(x) {
			n += m.bytes[e.Layer]
		}
	}
	return n
}

func (m *model) live() int64 {
	return m.sum(func(x *modelExpert) bool { return x.state != "" })
}

// astray is what strays are charged.
func (m *model) astray() (n int64) {
	for _, l := range m.strays {
		n += m.bytes[l]
	}
	return n
}

func (m *model) used() int64 { return m.live() + m.held + m.astray() }

func (m *model) evictable() int64 {
	return m.sum(func(x *modelExpert) bool { return x.state == "resident" && x.pins == 0 })
}

// last is the evictable expert expected last that is not in but; ties go to
// the lowest id.
func (m *model) last(class Class, but []layout.ExpertID) (best layout.ExpertID, ok bool) {
	for o := range m.shape.Count() {
		e := m.shape.ID(o)
		x := m.experts[e]
		if x.state != "resident" || x.pins > 0 || slices.Contains(but, e) {
			continue
		}
		if class == Speculative && m.step-x.used < m.protect {
			continue
		}
		if !ok || m.expect(e) > m.expect(best) {
			best, ok = e, true
		}
	}
	return best, ok
}

func (m *model) evict(e layout.ExpertID) {
	x := m.experts[e]
	if x.unused {
		m.wasted++
	}
	*x = modelExpert{used: x.used}
	m.evictions++
}

func (m *model) shrink() (victims []layout.ExpertID) {
	for m.live()+m.astray() > m.budget {
		e, ok := m.last(Demand, nil)
		if !ok {
			break
		}
		m.evict(e)
		victims = append(victims, e)
	}
	return victims
}

func (m *model) begin(e layout.ExpertID, class Class, own float64) ([]layout.ExpertID, error) {
	x := m.experts[e]
	switch x.state {
	case "resident":
		return nil, ErrResident
	case "filling":
		return nil, ErrFilling
	}
	victims, err := m.room(m.bytes[e.Layer], class, own)
	if err != nil {
		return nil, err
	}
	if class == Demand && x.thrown && m.step-x.used <= int64(m.shape.Layers) {
		m.displaced++
	}
	if class == Speculative && x.thrown {
		x.used = never
	}
	x.state, x.unused, x.thrown = "filling", class == Speculative, false
	if class == Demand {
		x.used = m.step
	}
	m.peak = max(m.peak, m.used())
	return victims, nil
}

// room evicts until need bytes are free.
func (m *model) room(need int64, class Class, own float64) ([]layout.ExpertID, error) {
	free := m.budget - m.used()
	late := m.sum(func(x *modelExpert) bool { return x.state == "filling" && x.unused })
	switch {
	case need > free+m.evictable(), need > free && need <= free+m.held,
		class == Speculative && late+need > m.budget-m.astray()-slices.Max(m.bytes):
		return nil, ErrNoRoom
	}
	var victims []layout.ExpertID
	for ; need > free; free += m.bytes[victims[len(victims)-1].Layer] {
		v, ok := m.last(class, victims)
		if !ok || (class == Speculative && m.expect(v) <= own) {
			return nil, ErrNotWorth
		}
		victims = append(victims, v)
	}
	for _, v := range victims {
		m.evict(v)
		if m.experts[v].thrown = class == Speculative; class == Speculative {
			m.experts[v].used = m.step
		}
	}
	return victims, nil
}

func (m *model) use(x *modelExpert) Outcome {
	if x.thrown && m.step-x.used <= int64(m.shape.Layers) {
		m.displaced++
	}
	unused := x.unused
	x.thrown, x.unused, x.used = false, false, m.step
	switch {
	case x.state == "":
		return Miss
	case x.state == "filling" && unused:
		return FillingLate
	case x.state == "filling":
		return Filling
	case unused:
		m.useful++
		return HitUseful
	}
	return Hit
}

// call makes one random call on both and compares what they return.
func (m *model) call(r *rapid.T, t *Table) string {
	e := m.shape.ID(rapid.IntRange(0, m.shape.Count()-1).Draw(r, "expert"))
	x := m.experts[e]
	same := func(what string, got, want any) string {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			r.Fatalf("%s of %v: got %v, want %v", what, e, got, want)
		}
		return fmt.Sprintf("%s of %v", what, e)
	}
	switch rapid.IntRange(0, 18).Draw(r, "call") {
	case 0, 1, 2, 3, 4, 5, 6:
		class := Class(rapid.IntRange(0, 1).Draw(r, "class"))
		own := float64(rapid.IntRange(0, 14).Draw(r, "own"))
		got, gotErr := t.Begin(e, class, own)
		want, wantErr := m.begin(e, class, own)
		same(class.String(), fmt.Sprint(got, gotErr), fmt.Sprint(want, wantErr))
		if gotErr == nil && rapid.IntRange(0, 4).Draw(r, "arrives") > 0 {
			x.state = "resident"
			return same("commit", t.Commit(e, 0), m.shrink())
		}
		return "begin"
	case 7:
		return same("use", t.Use(e), m.use(x))
	case 8:
		if x.state == "resident" {
			x.pins++
		}
		return same("pin", t.Pin(e), x.state == "resident")
	case 9:
		if x.pins == 0 {
			return "nothing"
		}
		x.pins--
		got := t.Unpin(e)
		var want []layout.ExpertID
		if x.pins == 0 {
			want = m.shrink()
		}
		return same("unpin", got, want)
	case 10, 11:
		if x.state != "filling" {
			return "nothing"
		}
		pins := rapid.IntRange(0, 2).Draw(r, "pins")
		x.state, x.pins = "resident", pins
		if pins > 0 {
			x.unused, x.used = false, m.step
		}
		got := t.Commit(e, pins)
		var want []layout.ExpertID
		if pins == 0 {
			want = m.shrink()
		}
		return same("commit", got, want)
	case 12:
		if x.state != "filling" {
			return "nothing"
		}
		x.state, x.unused = "", false
		t.Abort(e)
		return "abort"
	case 13, 14, 15:
		return m.callStray(r, t, e)
	}
	return m.callRare(r, t, e)
}

// callStray leaves memory behind in one of two ways, or finds some again.
func (m *model) callStray(r *rapid.T, t *Table, e layout.ExpertID) string {
	x := m.experts[e]
	switch how := rapid.IntRange(0, 2).Draw(r, "stray"); {
	case how == 0 && x.state == "filling":
		want, wantErr := m.room(m.bytes[e.Layer], Demand, 0)
		if wantErr == nil {
			m.strays = append(m.strays, int(e.Layer))
			m.peak = max(m.peak, m.used())
		}
		got, gotErr := t.Spare(e)
		if fmt.Sprint(got, gotErr) != fmt.Sprint(want, wantErr) {
			r.Fatalf("spare of %v: got %v, %v; want %v, %v", e, got, gotErr, want, wantErr)
		}
		return "spare"
	case how == 1 && x.state == "filling":
		m.strays = append(m.strays, int(e.Layer))
		x.state, x.unused = "", false
		t.Abandon(e)
		return "abandon"
	case how == 2 && len(m.strays) > 0:
		i := rapid.IntRange(0, len(m.strays)-1).Draw(r, "which")
		t.Found(m.strays[i])
		m.strays = slices.Delete(m.strays, i, i+1)
		return "found"
	}
	return "nothing"
}

func (m *model) callRare(r *rapid.T, t *Table, e layout.ExpertID) string {
	switch rapid.IntRange(0, 9).Draw(r, "rare call") {
	case 0:
		m.budget = rapid.Int64Range(0, 12).Draw(r, "budget")
		got := fmt.Sprint(t.SetBudget(m.budget))
		if want := fmt.Sprint(m.shrink()); got != want {
			r.Fatalf("SetBudget(%d): got victims %v, want %v", m.budget, got, want)
		}
		return "set budget"
	case 1:
		n := rapid.Int64Range(0, 2).Draw(r, "held")
		t.Hold(n - m.held)
		m.held = n
		m.peak = max(m.peak, m.used())
		return "hold"
	case 2:
		m.redraw(r, int(e.Layer), int(e.Layer)+1)
		t.Invalidate(int(e.Layer))
		return "invalidate"
	case 3:
		x := m.experts[e]
		ok := x.state == "resident" && x.pins == 0
		if ok {
			m.evict(e)
		}
		if got := t.Evict(e); got != ok {
			r.Fatalf("Evict(%v): got %v, want %v", e, got, ok)
		}
		return "evict"
	}
	m.step++
	t.Step()
	return "step"
}

// compare looks for the first difference in state.
func (m *model) compare(t *Table) error {
	residents := 0
	for e, x := range m.experts {
		if t.Resident(e) != (x.state == "resident") || t.InFlight(e) != (x.state == "filling") || t.Pins(e) != x.pins {
			return fmt.Errorf("%v: got resident %v, in flight %v, %d pins; want %+v", e, t.Resident(e), t.InFlight(e), t.Pins(e), *x)
		}
		if x.state == "resident" {
			residents++
		}
	}
	want := TableStats{
		Budget: m.budget, Used: m.used(), Peak: m.peak, StrayBytes: m.astray(), Strays: len(m.strays),
		Pinned:    m.sum(func(x *modelExpert) bool { return x.pins > 0 }),
		InFlight:  m.sum(func(x *modelExpert) bool { return x.state == "filling" }),
		Evictable: m.evictable(), Residents: residents,
		Evictions: m.evictions, Useful: m.useful, Wasted: m.wasted, Displaced: m.displaced,
	}
	if got := t.Stats(); got != want {
		return fmt.Errorf("stats: got %+v, want %+v", got, want)
	}
	if got := t.Outcomes(); got.Useful != m.useful || got.Displaced != m.displaced {
		return fmt.Errorf("outcomes: got %+v, want %d useful, %d displaced", got, m.useful, m.displaced)
	}
	if late := m.sum(func(x *modelExpert) bool { return x.state == "filling" && x.unused }); late != t.count.speculative {
		return fmt.Errorf("speculative bytes in flight: got %d, want %d", t.count.speculative, late)
	}
	return nil
}
