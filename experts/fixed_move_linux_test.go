package experts

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

// countMoves counts the runs of pages that the kernel moves; nil where it moves none.
func countMoves(m *FixedMemory) *atomic.Int64 {
	if m.remap == nil {
		return nil
	}
	moved := &atomic.Int64{}
	m.remap = func(from, to []byte) error {
		err := movePages(from, to)
		if err == nil {
			moved.Add(1)
		}
		return err
	}
	return moved
}

// newMoving is a memory whose pages move, with the count of it.
func newMoving(t testing.TB, shape layout.Shape, sizes ...int64) (*FixedMemory, *atomic.Int64) {
	t.Helper()
	m, err := NewFixedMemory(shape, sizes)
	if err != nil {
		t.Fatalf("NewFixedMemory: got error %v", err)
	}
	moved := countMoves(m)
	if moved == nil {
		_ = m.Close()
		t.Skip("this kernel does not move pages (MREMAP_DONTUNMAP, Linux 5.7)")
	}
	return m, moved
}

func take(t testing.TB, m *FixedMemory, e layout.ExpertID) []byte {
	t.Helper()
	b, err := m.Take(e, m.bytes[e.Layer])
	if err != nil {
		t.Fatalf("Take of %v: got error %v", e, err)
	}
	return b
}

func move(t testing.TB, m *FixedMemory, b []byte, e layout.ExpertID) []byte {
	t.Helper()
	b, err := m.Move(b, e, m.bytes[e.Layer])
	if err != nil {
		t.Fatalf("Move to %v: got error %v", e, err)
	}
	return b
}

// TestMoveTakesThePages: what lay in the evicted expert is found in the newcomer, nothing
// is committed anew, and the old address reads as zeros.
func TestMoveTakesThePages(t *testing.T) {
	sizes := []int64{mib, 3 * mib, 3*mib - 8192, 4 * mib, 5*mib + 4096, pageBytes}
	shape := layout.Shape{Layers: len(sizes), Experts: 2, TopK: 1}
	for _, row := range []struct {
		from, to int
		runs     int64
		stays    int64 // of what was committed
	}{
		{0, 0, 1, mib}, {1, 1, 2, 3 * mib}, {3, 3, 2, 4 * mib}, {4, 4, 3, 5*mib + 4096},
		{1, 2, 2, 3*mib - 8192}, {2, 1, 2, 3*mib - 8192}, // the tail is another
		{1, 4, 2, 2*mib + mib}, {4, 1, 2, 3 * mib}, {3, 1, 1, 2 * mib}, {1, 3, 1, 2 * mib}, {3, 4, 2, 4 * mib},
		{0, 4, 1, mib}, {4, 0, 1, mib}, {0, 3, 0, 0}, {3, 0, 0, 0}, // a tail goes to a tail
		{5, 1, 0, 0}, {1, 5, 0, 0}, {5, 5, 0, 0},
	} {
		m, moved := newMoving(t, shape, sizes...)
		old := take(t, m, id(row.from, 0))
		overwrite(old, 7)
		to := move(t, m, old, id(row.to, 1))
		rss, _ := committed(t, m.maps)
		if moved.Load() != row.runs || rss != row.stays {
			t.Errorf("%d to %d bytes: got %d runs moved, %d committed; want %d, %d", len(old), len(to), moved.Load(), rss, row.runs, row.stays)
		}
		if row.runs > 0 && to[0] != 7 && row.to != 4 {
			t.Errorf("%d to %d bytes: got %d at the newcomer's start, want what the old one had", len(old), len(to), to[0])
		}
		touch(to)
		if rss, _ := committed(t, m.maps); rss != int64(len(to)) {
			t.Errorf("%d to %d bytes: got %d committed when written, want the record", len(old), len(to), rss)
		}
		m.Give(to)
		if rss, _ := committed(t, m.maps); rss != 0 {
			t.Errorf("%d to %d bytes: got %d committed after Give, want 0", len(old), len(to), rss)
		}
		// Last, since reading what nobody lent commits pages on some systems.
		if old[0] != 0 || old[len(old)-1] != 0 {
			t.Errorf("%d to %d bytes: got %d and %d where the old one was, want zeros", len(old), len(to), old[0], old[len(old)-1])
		}
		if err := m.Close(); err != nil {
			t.Errorf("Close: got error %v", err)
		}
	}
}

// TestFullCacheMovesPages: in the steady state of a full cache each read takes the
// pages of what it evicts, locked or not. Huge pages stay huge, and mappings as few as
// planned.
func TestFullCacheMovesPages(t *testing.T) {
	o := Options{
		Shape: layout.Shape{Layers: 4, Experts: 32, TopK: 1}, BudgetBytes: 64 * mib,
		Bytes: []int64{3*mib - 8192, 5 * mib, mib, 4 * mib},
	}
	for name, open := range map[string]func(testing.TB, Options) *Cache{
		"plain":  newTestCache,
		"locked": newLocked,
	} {
		t.Run(name, func(t *testing.T) {
			m, moved := newMoving(t, o.Shape, o.Bytes...)
			o := o
			o.Memory = m
			runFull(t, open(t, o), m, moved)
		})
	}
}

func runFull(t *testing.T, c *Cache, m *FixedMemory, moved *atomic.Int64) {
	random := rand.New(rand.NewPCG(3, 0))
	turn := func() {
		e := c.shape.ID(random.IntN(c.shape.Count()))
		if l, out := c.Pin(e); out.Resident() {
			giveBack(t, l)
			return
		}
		giveBack(t, fill(t, c, e, 1)...)
	}
	for c.Stats().Evictions < 8 {
		turn()
	}
	evictions, runs := c.Stats().Evictions, moved.Load()
	for range 300 {
		turn()
	}
	s := c.Stats()
	evictions, runs = s.Evictions-evictions, moved.Load()-runs
	rss, huge := committed(t, m.maps)
	t.Logf("%d evictions, %d runs moved, %d of %d MiB in huge pages", evictions, runs, huge/mib, rss/mib)
	if runs < evictions*3/4 {
		t.Errorf("got %d runs of pages moved in %d evictions, want about one each or more", runs, evictions)
	}
	if rss > s.Used || (m.huge && huge == 0) {
		t.Errorf("got %d committed, %d in huge pages; want at most the %d charged, some", rss, huge, s.Used)
	}
	most := int64(2 * c.shape.Layers) // the ends of each stack
	for _, b := range m.bytes {
		most += int64(c.shape.Experts) * mappingsOf(b, m.cuts)
	}
	if s.Locked {
		most += int64(s.Residents)
	}
	if got := mappings(t, m.maps); got > most {
		t.Errorf("got %d mappings, want at most the %d planned", got, most)
	}
	checkAdvice(t, m)
}

// checkAdvice writes both ends of experts that are not in memory: huge pages may come
// only where the plan has them.
func checkAdvice(t *testing.T, m *FixedMemory) {
	t.Helper()
	_, before := committed(t, m.maps)
	for i := 0; i < m.shape.Count(); i += 3 {
		e := m.shape.ID(i)
		if m.state[i] != addressFree {
			continue
		}
		b := m.stacks[e.Layer][int64(e.Index)*m.plans[e.Layer].stride:][:m.bytes[e.Layer]]
		b[0], b[len(b)-1] = 1, 1
		_, after := committed(t, m.maps)
		release(b)
		if after-before > prefix(int64(len(b))) {
			t.Fatalf("%v: got %d bytes in huge pages, want at most %d", e, after-before, prefix(int64(len(b))))
		}
	}
}

// mappings counts the kernel's in the segments.
func mappings(t testing.TB, segments [][]byte) (n int64) {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Skipf("cannot see mappings: %v", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		where, _, _ := strings.Cut(lines.Text(), " ")
		low, high, _ := strings.Cut(where, "-")
		from, _ := strconv.ParseUint(low, 16, 64)
		to, _ := strconv.ParseUint(high, 16, 64)
		if owns(segments, uintptr(from), uintptr(to)) {
			n++
		}
	}
	return n
}

// TestMoveFallsBack: where the kernel refuses, before or after it has cleared the
// target, the newcomer's memory is fresh and all else as ever.
func TestMoveFallsBack(t *testing.T) {
	sizes := []int64{3 * mib, 5*mib + 4096}
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 1}
	for name, refuse := range map[string]func(to []byte){
		"before": func([]byte) {},
		"after":  unmapRange,
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := newMoving(t, shape, sizes...)
			refused := 0
			m.remap = func(from, to []byte) error {
				if refused++; refused%3 == 0 {
					return movePages(from, to)
				}
				refuse(to)
				return unix.ENOMEM
			}
			c := newTestCache(t, Options{Shape: shape, Bytes: sizes, BudgetBytes: 20 * mib, Memory: m, Poison: true})
			for i := range 60 {
				e := shape.ID(i * 5 % shape.Count())
				if c.Resident(e) {
					continue
				}
				l := fill(t, c, e, 1)[0]
				if rss, _ := committed(t, m.maps); rss > c.Stats().Used || !whole(l) {
					t.Fatalf("turn %d: got %d committed, whole %v; want at most the %d charged, true", i, rss, whole(l), c.Stats().Used)
				}
				giveBack(t, l)
			}
			if refused < 30 {
				t.Errorf("got %d moves asked for, want more", refused)
			}
			if _, huge := committed(t, m.maps); m.huge && huge == 0 {
				t.Error("got no huge pages after moves were refused, want some")
			}
		})
	}
}

// TestWithoutMoves: a kernel that cannot move pages gives back and takes.
func TestWithoutMoves(t *testing.T) {
	m, _ := newMoving(t, smallShape, 3*mib, 2*mib)
	defer m.Close()
	m.remap = nil
	b := take(t, m, id(0, 0))
	overwrite(b, 7)
	to := move(t, m, b, id(0, 1))
	if rss, _ := committed(t, m.maps); rss != 0 || to[0] != 0 || b[0] != 0 {
		t.Errorf("got %d committed, %d and %d at the starts; want nothing", rss, to[0], b[0])
	}
}

// unmapRange is what a kernel does to the target of a move that it then refuses.
func unmapRange(b []byte) {
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0)
}

// TestLostAddress: a range that the kernel does not map again is refused for good, and
// nothing else is.
func TestLostAddress(t *testing.T) {
	m, _ := newMoving(t, smallShape, 2*mib, 2*mib)
	defer m.Close()
	m.remap = func(_, to []byte) error {
		unmapRange(to)
		return unix.ENOMEM
	}
	m.remake = func([]byte, int) error { return unix.ENOMEM }
	b := take(t, m, id(0, 0))
	for _, b := range [][]byte{b, take(t, m, id(1, 0))} { // the second is given back
		_, err := m.Move(b, id(0, 1), 2*mib)
		if err == nil || !strings.Contains(err.Error(), "open anew") {
			t.Errorf("Move: got error %v, want one with a remedy", err)
		}
		m.Give(take(t, m, m.holder(b)))
	}
	if _, err := m.Take(id(0, 1), 2*mib); err == nil || !strings.Contains(err.Error(), "{0 1}") && !strings.Contains(err.Error(), id(0, 1).String()) {
		t.Errorf("Take: got error %v, want one that names the expert", err)
	}
}

// TestMoveWaitsForItsAddress: the newcomer's last loan may still be on its way back.
func TestMoveWaitsForItsAddress(t *testing.T) {
	m, _ := newMoving(t, smallShape, 2*mib, 2*mib)
	defer m.Close()
	a, b := take(t, m, id(0, 0)), take(t, m, id(0, 1))
	overwrite(a, 7)
	done := make(chan []byte)
	go func() {
		to, err := m.Move(a, id(0, 1), 2*mib)
		if err != nil {
			t.Errorf("Move: got error %v", err)
		}
		done <- to
	}()
	select {
	case <-done:
		t.Fatal("got an address that somebody else holds")
	case <-time.After(time.Millisecond):
	}
	m.Give(b)
	if to := <-done; to[0] != 7 || unsafe.SliceData(to) != unsafe.SliceData(b) {
		t.Errorf("got %d at %p, want 7 at %p", to[0], to, b)
	}
}
