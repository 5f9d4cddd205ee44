package experts

import (
	"strings"
	"testing"
	"unsafe"

	"outrider/layout"
)

func TestFixedMemoryKeepsAddresses(t *testing.T) {
	shape := layout.Shape{Layers: 4, Experts: 4, TopK: 1}
	sizes := []int64{3 * pageBytes, 2 * mib, 2*mib + 4096, mib - 8192}
	m, err := NewFixedMemory(shape, sizes)
	if err != nil {
		t.Fatalf("NewFixedMemory: got error %v", err)
	}
	c := newTestCache(t, Options{Shape: shape, Bytes: sizes, BudgetBytes: 8 * mib, Memory: m, Poison: true})
	if err := c.SetBudget(4*mib + 6*pageBytes); err != nil {
		t.Fatal(err)
	}
	for i := range 80 {
		e := shape.ID(i * 3 % shape.Count())
		var l Lease
		if pinned, out := c.Pin(e); out.Resident() {
			l = pinned
		} else {
			l = fill(t, c, e, 1)[0]
		}
		at := int64(e.Index) * m.StackStride(int(e.Layer))
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
	if _, err := NewFixedMemory(huge, []int64{1 << 38}); err == nil || !strings.Contains(err.Error(), "address space") {
		t.Errorf("2^54 bytes: got error %v, want one of address space", err)
	}
	m, err := NewFixedMemory(smallShape, []int64{pageBytes, 2 * pageBytes})
	if err != nil {
		t.Fatalf("NewFixedMemory: got error %v", err)
	}
	defer m.Close()
	_, err = m.Take(id(5, 0), pageBytes)
	wantError(t, "Take of an unknown expert", err, ErrUnknownExpert)
	for _, n := range []int64{0, pageBytes, 3 * pageBytes} {
		if _, err := m.Take(id(1, 0), n); err == nil {
			t.Errorf("Take of %d bytes of a slot of two pages: got no error, want one", n)
		}
	}
}

func TestPlanStacks(t *testing.T) {
	for name, row := range map[string]struct {
		bytes    []int64
		experts  int
		mappings int64
		want     []stackPlan
	}{
		"small": {[]int64{51 << 10, 508 << 10}, 8, 1000, []stackPlan{
			{51 << 10, 0, false}, {508 << 10, 0, false}}},
		"one page table": {[]int64{512 << 10, 2*mib - 4096}, 8, 1000, []stackPlan{
			{2 * mib, 0, true}, {2 * mib, 0, true}}},
		"whole huge pages": {[]int64{2 * mib, 6 * mib}, 8, 1000, []stackPlan{
			{2 * mib, 2 * mib, true}, {6 * mib, 6 * mib, true}}},
		"prefix and tail": {[]int64{3 * mib, 2*mib + 4096}, 8, 1000, []stackPlan{
			{4 * mib, 2 * mib, true}, {4 * mib, 2 * mib, true}}},
		"just enough mappings": {[]int64{3 * mib}, 8, 16, []stackPlan{{4 * mib, 2 * mib, true}}},
		"too few":              {[]int64{3 * mib}, 8, 15, []stackPlan{{3 * mib, 0, false}}},
		"for the first": {[]int64{3 * mib, 3 * mib, 4 * mib, mib}, 8, 24, []stackPlan{
			// The third has two cuts.
			{4 * mib, 2 * mib, true}, {3 * mib, 0, false}, {4 * mib, 4 * mib, false}, {2 * mib, 0, true}}},
	} {
		got := planStacks(row.bytes, row.experts, row.mappings)
		for l := range row.want {
			if got[l] != row.want[l] {
				t.Errorf("%s, layer %d: got %+v, want %+v", name, l, got[l], row.want[l])
			}
		}
	}
	if n := mappingsToSpend(); n < 1000 {
		t.Errorf("got %d mappings to spend, want thousands", n)
	}
}
