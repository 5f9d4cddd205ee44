package experts

import (
	"errors"
	"testing"
	"unsafe"

	"outrider/layout"
)

// begin starts a demand's fill.
func begin(t testing.TB, c *Cache, e layout.ExpertID) Fill {
	t.Helper()
	f, err := c.Begin(e, Demand, 0)
	if err != nil {
		t.Fatalf("Begin(%v): got error %v", e, err)
	}
	return f
}

// wantAstray compares what is charged in all, and for strays, in pages.
func wantAstray(t testing.TB, c *Cache, what string, used, strays int64) {
	t.Helper()
	s := c.Stats()
	if s.Used != used*pageBytes || s.StrayBytes != strays*pageBytes || int64(s.Strays) != strays {
		t.Errorf("%s: got %d bytes used, %d strays of %d bytes; want %d, %d, %d",
			what, s.Used, s.Strays, s.StrayBytes, used*pageBytes, strays, strays*pageBytes)
	}
}

// swapped takes a spare and makes it the fill's buffer.
func swapped(t testing.TB, f Fill) (Fill, Stray) {
	t.Helper()
	spare, err := f.Spare()
	if err != nil {
		t.Fatalf("Spare of %v: got error %v", f.ID(), err)
	}
	fresh, old, err := f.Swap(spare)
	if err != nil {
		t.Fatalf("Swap of %v: got error %v", f.ID(), err)
	}
	return fresh, old
}

func TestSpareWins(t *testing.T) {
	c := newTestCache(t, options(3))
	f := begin(t, c, id(0, 1))
	spare, err := f.Spare()
	if err != nil {
		t.Fatalf("Spare: got error %v", err)
	}
	wantAstray(t, c, "spare", 2, 1)
	buf := spare.Bytes()
	if len(buf) != pageBytes || unsafe.SliceData(buf) == unsafe.SliceData(f.Bytes()) {
		t.Errorf("spare: got %d bytes, want %d at another address", len(buf), pageBytes)
	}
	fresh, old, err := f.Swap(spare)
	if err != nil {
		t.Fatalf("Swap: got error %v", err)
	}
	if unsafe.SliceData(fresh.Bytes()) != unsafe.SliceData(buf) || unsafe.SliceData(old.Bytes()) != unsafe.SliceData(f.Bytes()) || fresh.ID() != f.ID() || spare.Bytes() != nil {
		t.Errorf("swapped: want the fill to have the spare's buffer, the stray the fill's, and the spare none")
	}
	wantError(t, "Commit of the old fill", f.Commit(nil, nil), ErrFillEnded)
	wantError(t, "Abort of the old fill", f.Abort(), ErrFillEnded)
	write(fresh)
	overwrite(f.Bytes(), 0xEE) // the kernel is still at it
	leases := make([]Lease, 1)
	if err := fresh.Commit(nil, leases); err != nil {
		t.Fatalf("Commit: got error %v", err)
	}
	overwrite(f.Bytes(), 0xEF)
	if !whole(leases[0]) {
		t.Errorf("lease: got the bytes of the stuck read")
	}
	wantAstray(t, c, "committed", 2, 1)
	spare.Release() // ended by Swap
	if got := c.Stats().ReleasedTwice; got != 1 {
		t.Errorf("release of a swapped spare: counted %d, want 1", got)
	}
	old.Release()
	wantAstray(t, c, "released", 1, 0)
	if f.Bytes()[0] != poisonByte || !whole(leases[0]) {
		t.Errorf("released: got %#x in the stray, lease whole %v; want %#x, true", f.Bytes()[0], whole(leases[0]), poisonByte)
	}
	giveBack(t, leases...)
}

func TestSpareLoses(t *testing.T) {
	c := newTestCache(t, options(3))
	f := begin(t, c, id(0, 1))
	spare, err := f.Spare()
	if err != nil {
		t.Fatalf("Spare: got error %v", err)
	}
	write(f)
	leases := make([]Lease, 1)
	if err := f.Commit(nil, leases); err != nil {
		t.Fatalf("Commit: got error %v", err)
	}
	buf := spare.Bytes()
	overwrite(buf, 0xEE)
	_, _, err = f.Swap(spare)
	wantError(t, "Swap of an ended fill", err, ErrFillEnded)
	wantAstray(t, c, "committed", 2, 1)
	spare.Release()
	wantAstray(t, c, "released", 1, 0)
	if !whole(leases[0]) || buf[0] != poisonByte || spare.Bytes() != nil {
		t.Errorf("released: got lease whole %v, %#x in the spare; want true, %#x", whole(leases[0]), buf[0], poisonByte)
	}
	giveBack(t, leases...)
}

func TestSwapRefuses(t *testing.T) {
	c, other := newTestCache(t, options(8)), newTestCache(t, options(4))
	f, g, h := begin(t, c, id(0, 0)), begin(t, c, id(0, 1)), begin(t, other, id(0, 0))
	mine, _ := f.Spare()
	ended, _ := f.Spare()
	ended.Release()
	theirs, _ := g.Spare()
	foreign, _ := h.Spare()
	for name, s := range map[string]Stray{"of another expert": theirs, "of another cache": foreign, "released": ended, "none": {}} {
		_, _, err := f.Swap(s)
		wantError(t, "Swap with a spare "+name, err, ErrFillEnded)
	}
	wantAstray(t, c, "refused", 4, 2)
	f, old, err := f.Swap(mine) // it is as it was
	if err != nil {
		t.Errorf("Swap: got error %v", err)
	}
	for _, s := range []Stray{old, theirs, foreign} {
		s.Release()
	}
	for _, f := range []Fill{f, g, h} {
		if err := f.Abort(); err != nil {
			t.Errorf("Abort: got error %v", err)
		}
	}
}

func TestSpareTakesRoomAsADemand(t *testing.T) {
	c := newTestCache(t, options(3))
	held := fill(t, c, id(0, 0), 1)[0]
	fill(t, c, id(0, 2), 0)
	f, first := swapped(t, begin(t, c, id(0, 1))) // throws 2 out
	if c.Resident(id(0, 2)) || !whole(held) {
		t.Errorf("spare: got victim resident %v, lease whole %v; want false, true", c.Resident(id(0, 2)), whole(held))
	}
	none, err := f.Spare()
	wantError(t, "Spare with all in use", err, ErrNoRoom)
	if none.Bytes() != nil {
		t.Errorf("refused Spare: got a buffer, want none")
	}
	wantAstray(t, c, "refused", 3, 1)
	first.Release()
	f, second := swapped(t, f)
	write(f)
	if err := f.Commit(nil, nil); err != nil {
		t.Errorf("Commit: got error %v", err)
	}
	second.Release()
	giveBack(t, held)
}

func TestSpareFailsWithoutMemory(t *testing.T) {
	boom := errors.New("boom")
	o := options(3)
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	f := begin(t, c, id(0, 0))
	mem.fail = boom
	_, err := f.Spare()
	wantError(t, "Spare without memory", err, boom)
	wantAstray(t, c, "after it", 1, 0)
	write(f)
	leases := make([]Lease, 1)
	if err := f.Commit(nil, leases); err != nil || !whole(leases[0]) {
		t.Errorf("Commit of the fill as it was: got error %v, whole %v", err, whole(leases[0]))
	}
	giveBack(t, leases...)
}

// TestFillEndsWhileASpareIsSought: the stuck read arrives after all, and the
// cache is closed, from inside of the memory.
func TestFillEndsWhileASpareIsSought(t *testing.T) {
	o := options(2)
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	fill(t, c, id(0, 1), 0)
	f := begin(t, c, id(0, 0))
	write(f)
	leases := make([]Lease, 1)
	mem.look = func() {
		mem.look = nil
		wantAstray(t, c, "seeking", 2, 1)
		if err := f.Commit(nil, leases); err != nil {
			t.Errorf("Commit: got error %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: got error %v", err)
		}
	}
	spare, err := f.Spare()
	if err != nil {
		t.Fatalf("Spare: got error %v", err)
	}
	_, _, err = f.Swap(spare)
	wantError(t, "Swap", err, ErrFillEnded)
	giveBack(t, leases...)
	if mem.closed != 0 {
		t.Errorf("with a spare left: memory is closed already")
	}
	spare.Release()
	if mem.closed != 1 || mem.lent != 0 {
		t.Errorf("after it: got closed %d times, %d buffers lent; want 1, 0", mem.closed, mem.lent)
	}
}

func TestAbandonKeepsTheCharge(t *testing.T) {
	freed := 0
	o := options(3)
	o.Freed = func() { freed++ }
	c := newTestCache(t, o)
	f := begin(t, c, id(0, 0))
	stray, err := f.Abandon()
	if err != nil {
		t.Fatalf("Abandon: got error %v", err)
	}
	if s := c.Stats(); s.InFlight != 0 || s.Fills != 0 || freed != 0 {
		t.Errorf("abandoned: got %d bytes in flight, %d fills, freed %d times; want none", s.InFlight, s.Fills, freed)
	}
	leases := fill(t, c, id(0, 0), 1) // the same expert, in other memory
	overwrite(f.Bytes(), 0xEE)
	wantAstray(t, c, "filled again", 2, 1)
	if !whole(leases[0]) {
		t.Errorf("lease: got the bytes of the abandoned read")
	}
	stray.Release()
	if freed != 1 || f.Bytes()[0] != poisonByte {
		t.Errorf("released: got freed %d times, byte %#x; want 1, %#x", freed, f.Bytes()[0], poisonByte)
	}
	again := begin(t, c, id(0, 1)) // may have the memory of the stray
	stray.Release()
	Stray{}.Release()
	wantAstray(t, c, "released twice", 2, 0)
	if s := c.Stats(); freed != 1 || s.ReleasedTwice != 1 {
		t.Errorf("released twice: got freed %d times, counted %d; want 1, 1", freed, s.ReleasedTwice)
	}
	if err := again.Abort(); err != nil {
		t.Errorf("Abort: got error %v", err)
	}
	giveBack(t, leases...)
}

func TestStraysStayInALoweredBudget(t *testing.T) {
	c := newTestCache(t, options(4))
	stray, _ := begin(t, c, id(0, 0)).Abandon()
	for i := range 3 {
		fill(t, c, id(1, i), 0)
	}
	if err := c.SetBudget(2 * pageBytes); err != nil {
		t.Fatal(err)
	}
	wantAstray(t, c, "lowered", 2, 1)
	if _, err := c.Begin(id(0, 1), Speculative, -100); !errors.Is(err, ErrNoRoom) {
		t.Errorf("speculative read into the room of a layer: got error %v, want %v", err, ErrNoRoom)
	}
	other := fill(t, c, id(0, 1), 1)[0]
	_, err := c.Begin(id(0, 2), Demand, 0)
	wantError(t, "Begin beside a lease and a stray", err, ErrNoRoom)
	stray.Release()
	fill(t, c, id(0, 2), 0)
	wantAstray(t, c, "released", 2, 0)
	giveBack(t, other)
}

func TestCloseWaitsForStrays(t *testing.T) {
	o := options(4)
	mem := &countingMemory{Memory: o.Memory}
	o.Memory = mem
	c := newTestCache(t, o)
	f, first := swapped(t, begin(t, c, id(0, 0)))
	second, _ := begin(t, c, id(0, 1)).Abandon()
	g := begin(t, c, id(0, 2))
	if err := c.Close(); err != nil {
		t.Fatalf("Close: got error %v", err)
	}
	_, err := f.Spare()
	wantError(t, "Spare after Close", err, ErrClosed)
	wantError(t, "Commit after Close", f.Commit(nil, nil), ErrClosed)
	third, err := g.Abandon()
	if err != nil {
		t.Errorf("Abandon after Close: got error %v", err)
	}
	first.Release()
	second.Release()
	if mem.closed != 0 || mem.lent != 1 {
		t.Errorf("with a stray left: got closed %d times, %d buffers lent; want 0, 1", mem.closed, mem.lent)
	}
	third.Release()
	if mem.closed != 1 || mem.lent != 0 {
		t.Errorf("after the last stray: got closed %d times, %d buffers lent; want 1, 0", mem.closed, mem.lent)
	}
}

func TestFixedAddressHasNoSecondBuffer(t *testing.T) {
	o := options(4)
	m, err := NewFixedMemory(o.Shape, o.Bytes)
	if err != nil {
		t.Skipf("no fixed addresses here: %v", err)
	}
	o.Memory = m
	c := newTestCache(t, o)
	f := begin(t, c, id(0, 0))
	_, err = f.Spare()
	wantError(t, "Spare", err, ErrFixed)
	stray, err := f.Abandon() // f is as it was
	if err != nil {
		t.Fatalf("Abandon: got error %v", err)
	}
	for _, class := range []Class{Demand, Speculative} {
		_, err = c.Begin(id(0, 0), class, -100)
		wantError(t, "Begin where a stray is, "+class.String(), err, ErrFilling)
	}
	giveBack(t, fill(t, c, id(0, 1), 1)...)
	overwrite(f.Bytes(), 0xEE)
	stray.Release()
	l := fill(t, c, id(0, 0), 1)[0]
	if unsafe.SliceData(l.Bytes()) != unsafe.SliceData(f.Bytes()) || !whole(l) {
		t.Errorf("after the release: got another address, or whole %v; want the expert's own, true", whole(l))
	}
	giveBack(t, l)
}
