package experts

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"outrider/layout"
)

// committed is how much of the segments the kernel has pages for, and how much
// of that is in huge pages.
func committed(t testing.TB, segments [][]byte) (rss, huge int64) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skipf("cannot see committed pages: %v", err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), " ")
		if !strings.HasSuffix(name, ":") { // "from-to rw-p …"
			low, high, _ := strings.Cut(name, "-")
			from, _ := strconv.ParseUint(low, 16, 64)
			to, _ := strconv.ParseUint(high, 16, 64)
			inside = owns(segments, uintptr(from), uintptr(to))
			continue
		}
		if !inside || (name != "Rss:" && name != "AnonHugePages:") {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			t.Fatalf("smaps: got %q: %v", lines.Text(), err)
		}
		if name == "Rss:" {
			rss += kb << 10
		} else {
			huge += kb << 10
		}
	}
	return rss, huge
}

// owns reports whether a mapping lies in one of the segments, which begin and
// end in pages that nobody touches.
func owns(segments [][]byte, from, to uintptr) bool {
	for _, seg := range segments {
		start := uintptr(unsafe.Pointer(unsafe.SliceData(seg)))
		if from < start+uintptr(len(seg)) && to > start {
			return true
		}
	}
	return false
}

func TestPlanSlots(t *testing.T) {
	const mib = 1 << 20
	for name, row := range map[string]struct {
		bytes  []int64
		budget int64
		want   slotPlan
	}{
		"small, one size":       {[]int64{mib, mib}, 10 * mib, slotPlan{mib, 10, hugeDense}},
		"small, two sizes":      {[]int64{mib, 4096}, 10 * mib, slotPlan{mib, 500, smallPages}},
		"whole huge pages":      {[]int64{4 * mib, 4 * mib}, 9 * mib, slotPlan{4 * mib, 2, hugeDense}},
		"large, one size":       {[]int64{3 * mib, 3 * mib}, 9 * mib, slotPlan{4 * mib, 3, hugePrefix}},
		"large, two sizes":      {[]int64{3 * mib, 5 * mib}, 30 * mib, slotPlan{6 * mib, 10, hugePrefix}},
		"very many, one size":   {[]int64{3 * mib}, 1 << 40, slotPlan{3 * mib, 100000, hugeDense}},
		"very many, two sizes":  {[]int64{3 * mib, 5 * mib}, 1 << 40, slotPlan{5 * mib, 100000, smallPages}},
		"no more than experts":  {[]int64{mib}, 1 << 60, slotPlan{mib, 100000, hugeDense}},
		"budget below one slot": {[]int64{mib}, 1, slotPlan{mib, 1, hugeDense}},
	} {
		experts := 100000
		if name == "small, two sizes" {
			experts = 500
		}
		if got := planSlots(row.bytes, row.budget, experts); got != row.want {
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
}

// TestCommittedStaysUnderTheCharge fills, evicts, lowers and raises at random
// and compares what the kernel has committed with what is charged.
func TestCommittedStaysUnderTheCharge(t *testing.T) {
	const mib = 1 << 20
	for name, sizes := range map[string][]int64{
		"hugeDense":           {mib / 2, mib / 2, mib / 2},
		"hugeDense, whole":    {2 * mib, 2 * mib, 2 * mib},
		"hugeDense, odd":      {mib - 4096, mib - 4096, mib - 4096},
		"hugePrefix":          {3*mib - 8192, 3*mib - 8192, 3*mib - 8192},
		"hugePrefix, mixed":   {2*mib + 4096, 5 * mib, 3*mib - 8192},
		"hugePrefix, some":    {mib, 4*mib + 4096, 2 * mib},
		"smallPages":          {mib / 2, mib, 3 * 4096},
		"smallPages, similar": {mib, mib - 4096, mib - 8192},
	} {
		t.Run(name, func(t *testing.T) { runCommitted(t, sizes) })
	}
}

func runCommitted(t *testing.T, sizes []int64) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	shape := layout.Shape{Layers: len(sizes), Experts: 16, TopK: 1}
	largest := max(sizes[0], sizes[1], sizes[2])
	budget := 8 * largest
	c := newTestCache(t, Options{Shape: shape, Bytes: sizes, BudgetBytes: budget})
	a := c.memory.(*arena)
	check := func(what string) {
		t.Helper()
		used := c.Stats().Used
		rss, _ := committed(t, a.segments)
		if rss > used+hugeBytes {
			t.Fatalf("seed %d, after %s: got %d committed, want at most the %d charged and one huge page", seed, what, rss, used)
		}
		if used > max(budget, c.Stats().Budget) {
			t.Fatalf("seed %d, after %s: got %d used of %d", seed, what, used, budget)
		}
	}
	for i := range 100 {
		e := shape.ID(random.IntN(shape.Count()))
		if f, err := c.Begin(e, Demand, 0); err == nil {
			check("Begin")
			write(f)
			if random.IntN(8) == 0 {
				_ = f.Abort()
				check("Abort")
			} else {
				_ = f.Commit(nil, nil)
			}
		}
		if i%20 == 19 {
			budget = largest * int64(3+random.IntN(7))
			if err := c.SetBudget(budget); err != nil {
				t.Fatal(err)
			}
			check("SetBudget")
		}
	}
	check("all")
}

func TestHugePagesAreGiven(t *testing.T) {
	if !hugePagesAllowed() {
		t.Skip("the system has transparent huge pages switched off")
	}
	for name, size := range map[string]int64{"dense": 1 << 20, "prefix": 5 << 20} {
		shape := layout.Shape{Layers: 1, Experts: 8, TopK: 1}
		c := newTestCache(t, Options{Shape: shape, Bytes: []int64{size}, BudgetBytes: 8 * size})
		for i := range 8 {
			fill(t, c, id(0, i), 0)
		}
		rss, huge := committed(t, c.memory.(*arena).segments)
		t.Logf("%s: %d MiB committed, %d MiB of them in huge pages", name, rss>>20, huge>>20)
		if !c.Stats().HugePages || huge == 0 {
			t.Errorf("%s: got huge pages %v, %d bytes in them; want true, some", name, c.Stats().HugePages, huge)
		}
	}
}

func TestArenaGrowsWithTheBudget(t *testing.T) {
	o := options(2)
	o.Memory = nil
	c := newTestCache(t, o)
	if err := c.SetBudget(8 * pageBytes); err != nil {
		t.Fatalf("SetBudget: got error %v", err)
	}
	for i := range 8 {
		fill(t, c, c.shape.ID(i), 0)
	}
	for i := range 8 {
		l, out := c.Pin(c.shape.ID(i))
		if out != Hit || !whole(l) {
			t.Errorf("expert %d: got %v, whole %v; want %v, true", i, out, whole(l), Hit)
		}
		giveBack(t, l)
	}
}

func TestArenaRefuses(t *testing.T) {
	a, err := newMemory([]int64{8 * pageBytes}, 16*pageBytes, 4)
	if err != nil {
		t.Fatalf("newMemory: got error %v", err)
	}
	defer a.Close()
	for _, n := range []int64{-1, 0, 9 * pageBytes} {
		if _, err := a.Take(id(0, 0), n); err == nil {
			t.Errorf("Take of %d bytes: got no error, want one", n)
		}
	}
	b, err := a.Take(id(0, 0), pageBytes)
	if err != nil {
		t.Fatalf("Take: got error %v", err)
	}
	if _, err := a.Move(b, id(0, 0), 9*pageBytes); err == nil {
		t.Errorf("Move to 9 pages: got no error, want one")
	}
	if _, err := newMemory([]int64{1 << 38}, 1<<62, 1<<20); err == nil || !strings.Contains(err.Error(), "lower the budget") {
		t.Errorf("newMemory of 2^58 bytes: got error %v, want one with a remedy", err)
	}
}
