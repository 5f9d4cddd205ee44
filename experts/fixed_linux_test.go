package experts

import (
	"testing"
	"unsafe"

	"outrider/layout"
)

func TestFixedMemoryKeepsAddresses(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 4, TopK: 1}
	sizes := []int64{3 * pageBytes, 2 << 20}
	m, err := NewFixedMemory(shape, sizes)
	if err != nil {
		t.Fatalf("NewFixedMemory: got error %v", err)
	}
	c := newTestCache(t, Options{Shape: shape, Bytes: sizes, BudgetBytes: 4 << 20, Memory: m, Poison: true})
	if err := c.SetBudget(2<<20 + 6*pageBytes); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		e := shape.ID(i * 3 % shape.Count())
		var l Lease
		if pinned, out := c.Pin(e); out.Resident() {
			l = pinned
		} else {
			l = fill(t, c, e, 1)[0]
		}
		at := int64(e.Index) * sizes[e.Layer]
		if got, want := unsafe.SliceData(l.Bytes()), &m.Stack(int(e.Layer))[at]; got != want || !whole(l) {
			t.Errorf("%v: got address %p, whole %v; want %p, true", e, got, whole(l), want)
		}
		if rss, _ := committed(t, m.maps); rss > c.Stats().Used {
			t.Errorf("turn %d: got %d committed, want at most the %d charged", i, rss, c.Stats().Used)
		}
		giveBack(t, l)
	}
}

func TestFixedMemoryRefuses(t *testing.T) {
	if _, err := NewFixedMemory(smallShape, []int64{pageBytes}); err == nil {
		t.Errorf("one size for two layers: got no error, want one")
	}
	huge := layout.Shape{Layers: 1, Experts: layout.MaxExperts, TopK: 1}
	if _, err := NewFixedMemory(huge, []int64{1 << 38}); err == nil {
		t.Errorf("2^54 bytes: got no error, want one")
	}
	m, err := NewFixedMemory(smallShape, []int64{pageBytes, pageBytes})
	if err != nil {
		t.Fatalf("NewFixedMemory: got error %v", err)
	}
	defer m.Close()
	_, err = m.Take(id(5, 0), pageBytes)
	wantError(t, "Take of an unknown expert", err, ErrUnknownExpert)
	if _, err := m.Take(id(0, 0), 2*pageBytes); err == nil {
		t.Errorf("Take of more than a slot: got no error, want one")
	}
}
