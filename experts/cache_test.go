package experts

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"outrider/layout"
)

var smallShape = layout.Shape{Layers: 2, Experts: 4, TopK: 1}

// options is a cache of slots of one page, of which the budget holds n.
func options(n int) Options {
	return Options{
		Shape: smallShape, Bytes: []int64{pageBytes, pageBytes}, BudgetBytes: int64(n) * pageBytes,
		Memory: NewHeapMemory(), Poison: true,
	}
}

func newTestCache(t testing.TB, o Options) *Cache {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatalf("New: got error %v", err)
	}
	t.Cleanup(func() { checkEmpty(t, c) })
	return c
}

// checkEmpty closes the cache and checks that nothing leaked.
func checkEmpty(t testing.TB, c *Cache) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("Close: got error %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("second Close: got error %v", err)
	}
	s := c.Stats()
	if s.Leases != 0 || s.Fills != 0 || s.Used != 0 || s.Pinned != 0 || s.InFlight != 0 || s.Evictable != 0 || s.Residents != 0 || s.Strays != 0 {
		t.Errorf("leak after Close: got %+v", s)
	}
	for i, slot := range c.slots {
		if slot != nil {
			t.Errorf("leak after Close: slot of %v", c.shape.ID(i))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unmapped || c.working != 0 {
		t.Errorf("after Close: got unmapped %v, working %d; want true, 0", c.unmapped, c.working)
	}
}

// content is what a test writes for an expert.
func content(e layout.ExpertID) byte { return byte(16*e.Layer + e.Index + 1) }

// fill brings an expert in with n leases.
func fill(t testing.TB, c *Cache, e layout.ExpertID, n int) []Lease {
	t.Helper()
	f, err := c.Begin(e, Demand, 0)
	if err != nil {
		t.Fatalf("Begin(%v): got error %v", e, err)
	}
	write(f)
	leases := make([]Lease, n)
	if err := f.Commit([]layout.Part{{At: 64, Bytes: 128}}, leases); err != nil {
		t.Fatalf("Commit(%v): got error %v", e, err)
	}
	return leases
}

func write(f Fill) {
	overwrite(f.Bytes(), content(f.ID()))
}

// whole reports whether the lease has the bytes written for its expert.
func whole(l Lease) bool {
	b := l.Bytes()
	want := content(l.ID())
	return len(b) > 0 && b[0] == want && b[len(b)/2] == want && b[len(b)-1] == want
}

func giveBack(t testing.TB, leases ...Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(); err != nil {
			t.Errorf("Release of %v: got error %v", l.ID(), err)
		}
	}
}

func wantError(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"shape":     {func(o *Options) { o.Shape.TopK = 9 }, "top-k"},
		"few sizes": {func(o *Options) { o.Bytes = o.Bytes[:1] }, "1 slot sizes for 2 layers"},
		"odd size":  {func(o *Options) { o.Bytes[1] = 5000 }, "layer 1 has slots of 5000 bytes"},
		"zero size": {func(o *Options) { o.Bytes[0] = 0 }, "layer 0"},
		"huge size": {func(o *Options) { o.Bytes[0] = 1 << 60 }, "layer 0"},
		"protect":   {func(o *Options) { o.Protect = -1 }, "protect"},
		"floor":     {func(o *Options) { o.Bytes[1] = 3 * pageBytes; o.Shape.TopK = 2 }, "needs 24576"},
	} {
		o := options(4)
		o.Bytes = slices.Clone(o.Bytes)
		row.change(&o)
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, row.want)
		}
		if name == "floor" {
			wantError(t, name, err, ErrBelowFloor)
		}
	}
}

func TestFloorAndCycle(t *testing.T) {
	var log bytes.Buffer
	o := options(4)
	o.Shape.TopK = 2
	o.Bytes = []int64{pageBytes, 2 * pageBytes}
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := newTestCache(t, o)
	if c.Floor() != 4*pageBytes || c.Cycle() != 6*pageBytes || !c.BelowCycle() {
		t.Errorf("got floor %d, cycle %d, below %v; want %d, %d, true", c.Floor(), c.Cycle(), c.BelowCycle(), 4*pageBytes, 6*pageBytes)
	}
	if !strings.Contains(log.String(), "cycle_bytes=24576") {
		t.Errorf("log: got %q, want a warning with the cycle", log.String())
	}
	err := c.SetBudget(4*pageBytes - 1)
	wantError(t, "SetBudget below the floor", err, ErrBelowFloor)
	if err := c.SetBudget(6 * pageBytes); err != nil || c.BelowCycle() {
		t.Errorf("SetBudget(cycle): got error %v, below %v; want none, false", err, c.BelowCycle())
	}
}

func TestFillAndPin(t *testing.T) {
	c := newTestCache(t, options(4))
	e := id(1, 2)
	if _, out := c.Pin(e); out != Miss {
		t.Errorf("Pin of an absent expert: got %v, want %v", out, Miss)
	}
	f, err := c.Begin(e, Speculative, 0)
	if err != nil {
		t.Fatalf("Begin: got error %v", err)
	}
	if n, at := len(f.Bytes()), uintptr(unsafe.Pointer(&f.Bytes()[0]))%pageBytes; n != pageBytes || at != 0 {
		t.Errorf("slot: got %d bytes at %d past a page, want %d at 0", n, at, pageBytes)
	}
	write(f)
	_, err = c.Begin(e, Demand, 0)
	wantError(t, "second Begin", err, ErrFilling)
	parts := []layout.Part{{At: 0, Bytes: 100, Sum: 7, Summed: true}, {At: 128, Bytes: 50}}
	if err := f.Commit(parts, nil); err != nil {
		t.Fatalf("Commit: got error %v", err)
	}
	parts[0].Bytes = 1
	_, err = c.Begin(e, Demand, 0)
	wantError(t, "Begin of a resident", err, ErrResident)

	l, out := c.Pin(e)
	if out != HitUseful || !whole(l) || !l.Held() || l.ID() != e {
		t.Errorf("first Pin: got %v, whole %v, held %v, id %v; want %v, true, true, %v", out, whole(l), l.Held(), l.ID(), HitUseful, e)
	}
	if got := l.Parts(); len(got) != 2 || got[0].Bytes != 100 {
		t.Errorf("parts: got %v, want a copy of those committed", got)
	}
	m, out := c.Pin(e)
	if out != Hit {
		t.Errorf("second Pin: got %v, want %v", out, Hit)
	}
	giveBack(t, l)
	if !whole(m) {
		t.Errorf("lease after the other's release: got other bytes")
	}
	giveBack(t, m)
	if !c.Resident(e) || c.Resident(id(0, 0)) || c.Resident(id(9, 9)) {
		t.Errorf("Resident: want true for the filled expert only")
	}
}

func TestUnknownExpert(t *testing.T) {
	c := newTestCache(t, options(4))
	for _, e := range []layout.ExpertID{id(2, 0), id(0, 4), id(-1, 0), id(0, -1)} {
		if _, out := c.Pin(e); out != Refused {
			t.Errorf("Pin(%v): got %v, want %v", e, out, Refused)
		}
		_, err := c.Begin(e, Demand, 0)
		wantError(t, fmt.Sprintf("Begin(%v)", e), err, ErrUnknownExpert)
	}
	c.Invalidate(-1)
	c.Invalidate(2)
}

func TestCommitTakesLeasesAtOnce(t *testing.T) {
	c := newTestCache(t, options(1))
	leases := fill(t, c, id(0, 0), 3)
	for i, l := range leases {
		_, err := c.Begin(id(0, 1), Demand, 0)
		wantError(t, fmt.Sprintf("Begin with %d leases left", 3-i), err, ErrNoRoom)
		if !whole(l) {
			t.Errorf("lease %d: got other bytes", i)
		}
		giveBack(t, l)
	}
	giveBack(t, fill(t, c, id(0, 1), 1)...)
}

func TestSecondReleaseIsHarmless(t *testing.T) {
	c := newTestCache(t, options(2))
	l := fill(t, c, id(0, 0), 1)[0]
	other, _ := c.Pin(id(0, 0))
	giveBack(t, l)
	wantError(t, "second Release", l.Release(), ErrReleased)
	third, _ := c.Pin(id(0, 0)) // takes the ticket that l had
	wantError(t, "Release of an old copy", l.Release(), ErrReleased)
	wantError(t, "Release of no lease", Lease{}.Release(), ErrReleased)
	if l.Bytes() != nil || l.Parts() != nil || l.Held() {
		t.Errorf("released lease: got bytes, parts or held, want none")
	}
	if got := c.Stats(); got.Leases != 2 || got.ReleasedTwice != 2 || got.Pinned != pageBytes {
		t.Errorf("got leases %d, released twice %d, pinned %d; want 2, 2, %d", got.Leases, got.ReleasedTwice, got.Pinned, pageBytes)
	}
	giveBack(t, other, third)
}

func TestFillEndsOnce(t *testing.T) {
	c := newTestCache(t, options(2))
	for name, end := range map[string]func(Fill) error{
		"commit":  func(f Fill) error { return f.Commit(nil, nil) },
		"abort":   Fill.Abort,
		"abandon": func(f Fill) error { return ended(f.Abandon()) },
	} {
		f, err := c.Begin(id(0, 0), Demand, 0)
		if err != nil {
			t.Fatalf("%s: Begin: got error %v", name, err)
		}
		if err := end(f); err != nil {
			t.Errorf("%s: got error %v", name, err)
		}
		wantError(t, name+", then commit", f.Commit(nil, nil), ErrFillEnded)
		wantError(t, name+", then abort", f.Abort(), ErrFillEnded)
		_, err = f.Abandon()
		wantError(t, name+", then abandon", err, ErrFillEnded)
		_, err = f.Spare()
		wantError(t, name+", then spare", err, ErrFillEnded)
		if got, want := c.Resident(id(0, 0)), name == "commit"; got != want {
			t.Errorf("%s: got resident %v, want %v", name, got, want)
		}
		if err := c.SetBudget(pageBytes); err != nil {
			t.Fatal(err)
		}
		// Throws the expert out, so that its slot struct is used again.
		giveBack(t, fill(t, c, id(0, 1), 1)...)
		wantError(t, name+", then commit of the old fill", f.Commit(nil, nil), ErrFillEnded)
		giveBack(t, fill(t, c, id(0, 2), 1)...)
	}
	wantError(t, "commit of no fill", Fill{}.Commit(nil, nil), ErrFillEnded)
	wantError(t, "abort of no fill", Fill{}.Abort(), ErrFillEnded)
	_, err := Fill{}.Abandon()
	wantError(t, "abandon of no fill", err, ErrFillEnded)
	_, err = Fill{}.Spare()
	wantError(t, "spare of no fill", err, ErrFillEnded)
	_, _, err = Fill{}.Swap(Stray{})
	wantError(t, "swap of no fill", err, ErrFillEnded)
}

// ended releases the stray at once.
func ended(s Stray, err error) error {
	s.Release()
	return err
}

func TestCommitChecksParts(t *testing.T) {
	c := newTestCache(t, options(2))
	f, _ := c.Begin(id(0, 0), Demand, 0)
	for _, p := range []layout.Part{{At: -1}, {Bytes: -1}, {At: pageBytes, Bytes: 1}, {At: 1, Bytes: pageBytes}, {At: 1, Bytes: 1<<63 - 1}} {
		wantError(t, fmt.Sprintf("part %+v", p), f.Commit([]layout.Part{p}, nil), ErrParts)
	}
	if err := f.Commit([]layout.Part{{At: 0, Bytes: pageBytes}, {At: pageBytes}}, nil); err != nil {
		t.Errorf("good parts: got error %v", err)
	}
}

func TestEvictedSlotIsPoisoned(t *testing.T) {
	c := newTestCache(t, options(1))
	l := fill(t, c, id(0, 0), 1)[0]
	stale := l.Bytes()
	giveBack(t, l)
	if stale[0] != content(id(0, 0)) {
		t.Errorf("resident without leases: got byte %#x, want its content", stale[0])
	}
	f, err := c.Begin(id(0, 1), Demand, 0)
	if err != nil {
		t.Fatalf("Begin: got error %v", err)
	}
	for i, b := range stale {
		if b != poisonByte {
			t.Fatalf("byte %d of an evicted slot: got %#x, want %#x", i, b, poisonByte)
		}
	}
	if err := f.Abort(); err != nil {
		t.Errorf("Abort: got error %v", err)
	}
}

func TestFreedIsCalled(t *testing.T) {
	calls := 0
	o := options(2)
	var c *Cache
	o.Freed = func() { c.Stats(); calls++ } // Stats: no lock may be held
	c = newTestCache(t, o)
	f := func(what string, want int, do func()) {
		t.Helper()
		calls = 0
		do()
		if calls != want {
			t.Errorf("%s: got %d calls, want %d", what, calls, want)
		}
	}
	var leases []Lease
	f("Commit with leases", 0, func() { leases = fill(t, c, id(0, 0), 2) })
	f("first Release of two", 0, func() { giveBack(t, leases[0]) })
	f("last Release", 1, func() { giveBack(t, leases[1]) })
	f("Commit without leases", 1, func() { fill(t, c, id(0, 1), 0) })
	f("lowered budget", 1, func() { _ = c.SetBudget(pageBytes) })
	f("raised budget", 1, func() { _ = c.SetBudget(2 * pageBytes) })
	f("Abort", 1, func() {
		fill, err := c.Begin(id(0, 2), Demand, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = fill.Abort()
	})
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	o := options(2)
	o.Memory, o.Poison = nil, false
	c := newTestCache(t, o)
	parts := []layout.Part{{At: 0, Bytes: 64}}
	leases := make([]Lease, 2)
	i := 0
	turn := func() {
		i++
		f, err := c.Begin(id(0, i%4), Demand, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Commit(parts, leases); err != nil {
			t.Fatal(err)
		}
		l, out := c.Pin(id(0, i%4))
		if out != Hit {
			t.Fatalf("got %v, want %v", out, Hit)
		}
		giveBack(t, l, leases[0], leases[1])
	}
	turn()
	if got := testing.AllocsPerRun(100, turn); got != 0 {
		t.Errorf("a fill, a pin and their releases: got %g allocations, want 0", got)
	}
}
