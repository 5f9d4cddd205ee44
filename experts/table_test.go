package experts

import (
	"errors"
	"math"
	"slices"
	"testing"

	"outrider/layout"

	"pgregory.net/rapid"
)

// fixedPolicy has keys that tests set, and a distance by layer.
type fixedPolicy struct {
	keys     [][]float64
	distance []float64
}

func (p *fixedPolicy) Keys(layer int) []float64 { return p.keys[layer] }

func (p *fixedPolicy) Expect(layer int, key float64) float64 { return p.distance[layer] + key }

func newFixedPolicy(s layout.Shape) *fixedPolicy {
	p := &fixedPolicy{distance: make([]float64, s.Layers)}
	for range s.Layers {
		p.keys = append(p.keys, make([]float64, s.Experts))
	}
	return p
}

func id(layer, index int) layout.ExpertID {
	return layout.ExpertID{Layer: int32(layer), Index: int32(index)}
}

func newTestTable(t testing.TB, o TableOptions) *Table {
	t.Helper()
	table, err := NewTable(o)
	if err != nil {
		t.Fatalf("NewTable: got error %v", err)
	}
	return table
}

// load brings experts in as the class.
func load(t testing.TB, table *Table, class Class, own float64, ids ...layout.ExpertID) {
	t.Helper()
	for _, e := range ids {
		if _, err := table.Begin(e, class, own); err != nil {
			t.Fatalf("Begin(%v, %v): got error %v, want none", e, class, err)
		}
		table.Commit(e, 0)
	}
}

func one(int) int64 { return 1 }

func TestNewTableRefuses(t *testing.T) {
	good := layout.Shape{Layers: 2, Experts: 4, TopK: 2}
	for name, o := range map[string]TableOptions{
		"shape":    {Shape: layout.Shape{Layers: 2}, BudgetBytes: 4, Bytes: one},
		"budget":   {Shape: good, BudgetBytes: -1, Bytes: one},
		"protect":  {Shape: good, BudgetBytes: 4, Bytes: one, Protect: -1},
		"no bytes": {Shape: good, BudgetBytes: 4},
		"zero":     {Shape: good, BudgetBytes: 4, Bytes: func(l int) int64 { return int64(1 - l) }},
		"huge":     {Shape: good, BudgetBytes: 4, Bytes: func(int) int64 { return math.MaxInt64 }},
	} {
		if _, err := NewTable(o); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func TestTableEvictsTheOneExpectedLast(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 4, TopK: 1}
	p := newFixedPolicy(shape)
	p.keys[0] = []float64{1, 9, 3, 2}
	p.keys[1] = []float64{4, 8, 2, 1}
	p.distance = []float64{0, 3}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 4, Bytes: one, Policy: p})
	load(t, table, Demand, 0, id(0, 0), id(0, 1), id(1, 0), id(1, 1))

	var got []layout.ExpertID
	for _, e := range []layout.ExpertID{id(0, 2), id(0, 3), id(1, 2)} {
		victims, err := table.Begin(e, Demand, 0)
		if err != nil {
			t.Fatalf("Begin(%v): got error %v", e, err)
		}
		got = append(got, victims...)
		table.Commit(e, 1)
	}
	want := []layout.ExpertID{id(1, 1), id(0, 1), id(1, 0)} // expected in 11, 9, 7
	if !slices.Equal(got, want) {
		t.Errorf("victims: got %v, want %v", got, want)
	}

	table.Unpin(id(0, 2))
	p.keys[0][2], p.keys[0][0] = 0, 7
	table.Invalidate(0)
	victims, err := table.Begin(id(1, 3), Demand, 0)
	if err != nil || len(victims) != 1 || victims[0] != id(0, 0) {
		t.Errorf("after new keys: got victims %v, error %v; want %v", victims, err, id(0, 0))
	}
}

func TestTableSpeculationIsGuarded(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 1}
	p := newFixedPolicy(shape)
	p.keys[0] = []float64{9, 5, 1, 0, 0, 0, 0, 0}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 3, Bytes: one, Policy: p, Protect: 2})
	load(t, table, Demand, 0, id(0, 0), id(0, 1), id(0, 2))
	f := func(e layout.ExpertID, own float64, want error) {
		t.Helper()
		if _, err := table.Begin(e, Speculative, own); !errors.Is(err, want) {
			t.Errorf("step %d: Begin(%v, own %g): got error %v, want %v", table.step, e, own, err, want)
		}
	}
	f(id(0, 3), 0, ErrNotWorth) // all used just now
	table.Step()
	table.Use(id(0, 0))
	table.Step()
	f(id(0, 3), 5, ErrNotWorth) // 0 is protected, 1 is expected no later
	f(id(0, 3), 4.9, nil)       // throws out 1
	f(id(0, 3), 4.9, ErrFilling)
	table.Commit(id(0, 3), 0)
	f(id(0, 3), 4.9, ErrResident)
	table.Step()
	f(id(0, 4), 8, nil) // 0 is no longer protected
	f(id(0, 5), 0, nil) // throws out 2
	f(id(0, 6), -1, ErrNoRoom)
	table.Abort(id(0, 4))

	if got := table.Use(id(0, 3)); got != HitUseful {
		t.Errorf("first use of a speculative read: got %v, want %v", got, HitUseful)
	}
	if got := table.Use(id(0, 5)); got != FillingLate {
		t.Errorf("use of a speculative read in flight: got %v, want %v", got, FillingLate)
	}
	if got := table.Use(id(0, 1)); got != Miss {
		t.Errorf("use of a displaced expert: got %v, want %v", got, Miss)
	}
	if _, err := table.Begin(id(0, 1), Demand, 0); err != nil {
		t.Errorf("Begin of the displaced expert: got error %v", err)
	}
	s := table.Stats()
	if s.Useful != 1 || s.Displaced != 1 || s.Wasted != 0 || s.Evictions != 3 {
		t.Errorf("got useful %d, displaced %d, wasted %d, evictions %d; want 1, 1, 0, 3", s.Useful, s.Displaced, s.Wasted, s.Evictions)
	}
}

func TestTableUseProtectsTheNextVictim(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 1}
	p := newFixedPolicy(shape)
	p.keys[0] = []float64{9, 5, 0, 0}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 2, Bytes: one, Policy: p, Protect: 1})
	load(t, table, Demand, 0, id(0, 0), id(0, 1))
	table.Step()
	if _, err := table.Begin(id(0, 2), Speculative, 10); !errors.Is(err, ErrNotWorth) {
		t.Fatalf("Begin with a large own: got error %v, want %v", err, ErrNotWorth)
	}
	table.Use(id(0, 0)) // would have been the next victim
	victims, err := table.Begin(id(0, 2), Speculative, 1)
	if err != nil || !slices.Equal(victims, []layout.ExpertID{id(0, 1)}) {
		t.Errorf("Begin: got victims %v, error %v; want %v", victims, err, id(0, 1))
	}
}

func TestTableSpeculationLeavesRoomForALayer(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 2}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 3, Bytes: one})
	if _, err := table.Begin(id(0, 0), Speculative, 0); err != nil {
		t.Fatalf("first speculative read: got error %v", err)
	}
	if _, err := table.Begin(id(0, 1), Speculative, 0); !errors.Is(err, ErrNoRoom) {
		t.Errorf("second speculative read: got error %v, want %v", err, ErrNoRoom)
	}
	table.Use(id(0, 0)) // now it is a demand's
	if _, err := table.Begin(id(0, 1), Speculative, 0); err != nil {
		t.Errorf("after the first was demanded: got error %v", err)
	}
}

func TestTableWasted(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 1}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 2, Bytes: one})
	load(t, table, Speculative, 0, id(0, 0), id(0, 1))
	table.Use(id(0, 1))
	load(t, table, Demand, 0, id(0, 2), id(0, 3))
	if s := table.Stats(); s.Wasted != 1 || s.Displaced != 0 {
		t.Errorf("got wasted %d, displaced %d; want 1, 0", s.Wasted, s.Displaced)
	}
	if table.Evict(id(0, 0)) || !table.Evict(id(0, 2)) || table.Resident(id(0, 2)) {
		t.Errorf("Evict: want false for an absent expert, true for a resident one, which then is absent")
	}
}

func TestTableLoweredBudgetFollowsPins(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 8, TopK: 1}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 4, Bytes: one})
	load(t, table, Demand, 0, id(0, 0), id(0, 1), id(0, 2))
	table.Pin(id(0, 0))
	table.Pin(id(0, 0))
	table.Pin(id(0, 1))
	table.Begin(id(0, 3), Demand, 0)
	if got := len(table.SetBudget(1)); got != 1 {
		t.Errorf("SetBudget(1): got %d victims, want 1", got)
	}
	if got := table.Unpin(id(0, 0)); len(got) != 0 {
		t.Errorf("first Unpin of two: got victims %v, want none", got)
	}
	if got := table.Unpin(id(0, 0)); len(got) != 1 {
		t.Errorf("last Unpin: got victims %v, want one", got)
	}
	if got := table.Commit(id(0, 3), 0); len(got) != 1 {
		t.Errorf("Commit over the budget: got victims %v, want one", got)
	}
	if got := table.Stats().Used; got != 1 {
		t.Errorf("used: got %d, want 1", got)
	}
	if got := table.Unpin(id(0, 1)); len(got) != 0 || !table.Resident(id(0, 1)) {
		t.Errorf("Unpin within the budget: got victims %v, resident %v; want none, true", got, table.Resident(id(0, 1)))
	}
}

func TestTableBadKeys(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 1}
	p := newFixedPolicy(shape)
	p.keys[0] = []float64{math.NaN(), math.Inf(-1), 5} // none for 3
	p.distance[0] = math.Inf(1)                        // with -Inf: NaN
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 3, Bytes: one, Policy: p})
	load(t, table, Demand, 0, id(0, 0), id(0, 1), id(0, 2), id(0, 3))
	if table.Resident(id(0, 0)) {
		t.Errorf("expert with a NaN key: got resident, want evicted first")
	}
	load(t, table, Demand, 0, id(0, 0))
	if got := table.Stats().Residents; got != 3 {
		t.Errorf("residents: got %d, want 3", got)
	}
}

func TestTableHeldBytesAreCharged(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 1}
	table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 2, Bytes: one})
	load(t, table, Demand, 0, id(0, 0))
	table.Hold(1)
	if _, err := table.Begin(id(0, 1), Demand, 0); !errors.Is(err, ErrNoRoom) || !table.Resident(id(0, 0)) {
		t.Errorf("Begin with held bytes: got error %v, want %v and nobody evicted", err, ErrNoRoom)
	}
	table.Hold(-1)
	if victims, err := table.Begin(id(0, 1), Demand, 0); err != nil || len(victims) != 0 {
		t.Errorf("Begin after: got victims %v, error %v; want none", victims, err)
	}
}

func TestTableBrokenInvariantsPanic(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 1}
	for name, f := range map[string]func(*Table){
		"unpin":   func(t *Table) { t.Unpin(id(0, 0)) },
		"commit":  func(t *Table) { t.Commit(id(0, 0), 0) },
		"abort":   func(t *Table) { t.Abort(id(0, 0)) },
		"spare":   func(t *Table) { _, _ = t.Spare(id(0, 0)) },
		"abandon": func(t *Table) { t.Abandon(id(0, 0)) },
		"found":   func(t *Table) { t.Found(0) },
	} {
		table := newTestTable(t, TableOptions{Shape: shape, BudgetBytes: 2, Bytes: one})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s of an absent expert: got no panic, want one", name)
				}
			}()
			f(table)
		}()
	}
}

// TestTableAgainstModel runs random calls against a plain model.
func TestTableAgainstModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		shape := layout.Shape{
			Layers:  rapid.IntRange(1, 4).Draw(r, "layers"),
			Experts: rapid.IntRange(2, 6).Draw(r, "experts"), TopK: 1,
		}
		m := newModel(shape, rapid.IntRange(0, 3).Draw(r, "protect"))
		for l := range m.bytes {
			m.bytes[l] = rapid.Int64Range(1, 3).Draw(r, "bytes")
		}
		m.budget = rapid.Int64Range(3, 12).Draw(r, "budget")
		m.redraw(r, 0, shape.Layers)
		table := newTestTable(t, TableOptions{
			Shape: shape, BudgetBytes: m.budget, Policy: m.policy, Protect: int(m.protect),
			Bytes: func(l int) int64 { return m.bytes[l] },
		})
		for range rapid.IntRange(1, 200).Draw(r, "calls") {
			before := table.Stats()
			what := m.call(r, table)
			if s := table.Stats(); what != "hold" && s.Used > max(s.Budget, before.Used) {
				r.Fatalf("after %s: got %d used, want at most the budget of %d, or the %d of before", what, s.Used, s.Budget, before.Used)
			}
			if err := m.compare(table); err != nil {
				r.Fatalf("after %s: %v", what, err)
			}
		}
	})
}
