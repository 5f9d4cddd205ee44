package experts

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

// vmLocked is how many bytes the process has locked.
func vmLocked(t testing.TB) int64 {
	t.Helper()
	text, err := readSmall(os.DirFS("/"), statusFile)
	n, ok := keyedBytes(text, "VmLck:")
	if err != nil || !ok {
		t.Skipf("cannot see locked pages: %v", err)
	}
	return n
}

// newLocked skips where so much may not be locked.
func newLocked(t testing.TB, o Options) *Cache {
	t.Helper()
	o.Lock = true
	c, err := New(o)
	if errors.Is(err, ErrLockLimit) {
		t.Skipf("this process may not lock %d bytes: %v", o.BudgetBytes, err)
	}
	if err != nil {
		t.Fatalf("New: got error %v", err)
	}
	t.Cleanup(func() { checkEmpty(t, c) })
	return c
}

// TestLockFollowsTheCharge fills, evicts, aborts, takes spares and changes the budget
// at random: what is locked is what is charged, what is not is committed no more.
func TestLockFollowsTheCharge(t *testing.T) {
	for name, sizes := range map[string][]int64{
		"hugeDense":         {mib / 2, mib / 2, mib / 2},
		"hugePrefix, mixed": {2*mib + 4096, 5 * mib, 3*mib - 8192},
		"smallPages":        {mib / 2, mib, 3 * 4096},
		"fixed":             {mib / 2, 3*mib - 4096, 2 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			shape := layout.Shape{Layers: len(sizes), Experts: 16, TopK: 1}
			o := Options{Shape: shape, Bytes: sizes, BudgetBytes: 20 * mib}
			segments := func(c *Cache) [][]byte { return c.memory.(*arena).segments }
			if name == "fixed" {
				m, err := NewFixedMemory(shape, sizes)
				if err != nil {
					t.Fatalf("NewFixedMemory: got error %v", err)
				}
				o.Memory = m
				segments = func(*Cache) [][]byte { return m.maps }
			}
			before := vmLocked(t)
			c := newLocked(t, o)
			runLocked(t, c, func(what string) {
				t.Helper()
				s, locked := c.Stats(), vmLocked(t)-before
				rss, _ := committed(t, segments(c))
				if !s.Locked || locked != s.Used || rss > s.Used+hugeBytes {
					t.Fatalf("after %s: got locked %v, %d bytes locked, %d committed; want true, the %d charged, at most those and one huge page", what, s.Locked, locked, rss, s.Used)
				}
			})
			if err := c.Close(); err != nil {
				t.Fatalf("Close: got error %v", err)
			}
			if got := vmLocked(t) - before; got != 0 {
				t.Errorf("after Close: got %d bytes locked, want 0", got)
			}
		})
	}
}

func runLocked(t *testing.T, c *Cache, check func(what string)) {
	random := rand.New(rand.NewPCG(11, 0))
	for i := range 80 {
		f, err := c.Begin(c.shape.ID(random.IntN(c.shape.Count())), Demand, 0)
		if err != nil {
			continue
		}
		check("Begin")
		if spare, err := f.Spare(); err == nil {
			check("Spare")
			spare.Release()
		}
		write(f)
		if random.IntN(8) == 0 {
			_ = f.Abort()
			check("Abort")
			continue
		}
		_ = f.Commit(nil, nil)
		if i%10 == 9 {
			if err := c.SetBudget((8 + random.Int64N(13)) * mib); err != nil {
				t.Fatalf("SetBudget: got error %v", err)
			}
			check("SetBudget")
		}
	}
}

func TestLockCommitsNothing(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 4, TopK: 1}
	c := newLocked(t, Options{Shape: shape, Bytes: []int64{4 * mib}, BudgetBytes: 16 * mib})
	segments := c.memory.(*arena).segments
	f := begin(t, c, id(0, 0))
	if rss, _ := committed(t, segments); rss != 0 {
		t.Errorf("lent and not written: got %d bytes committed, want 0", rss)
	}
	write(f)
	rss, huge := committed(t, segments)
	if rss != 4*mib || (c.Stats().HugePages && huge == 0) {
		t.Errorf("written: got %d bytes committed, %d of them in huge pages; want %d, some", rss, huge, 4*mib)
	}
	if err := f.Abort(); err != nil {
		t.Errorf("Abort: got error %v", err)
	}
}

func TestLockRefusesOtherMemory(t *testing.T) {
	o := options(4)
	o.Lock = true
	_, err := New(o)
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "heapMemory") {
		t.Errorf("New with the Go heap: got error %v, want %v that names the memory", err, errors.ErrUnsupported)
	}
}

// withoutPrivilege runs f where the limit on locked memory holds.
func withoutPrivilege(t *testing.T, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		var caps [2]unix.CapUserData
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		if err := unix.Capget(&header, &caps[0]); err != nil {
			t.Errorf("capget: %v", err)
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := unix.Capset(&header, &caps[0]); err != nil {
			t.Errorf("capset: %v", err)
			return
		}
		f()
	}()
	<-done
}

func TestLockLimit(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur < uint64(mib) || limit.Cur > 1<<40 {
		t.Skipf("no limit on locked memory to run into: %d, error %v", limit.Cur, err)
	}
	shape := layout.Shape{Layers: 1, Experts: 16, TopK: 1}
	size := int64(limit.Cur) / 8 / pageBytes * pageBytes
	o := Options{Shape: shape, Bytes: []int64{size}, Lock: true}
	tooMuch := func(what string, err error, text ...string) {
		t.Helper()
		wantError(t, what, err, ErrLockLimit)
		for _, want := range append(text, "ulimit -l", "LimitMEMLOCK=", "CAP_IPC_LOCK") {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %q, want %q in it", what, err, want)
			}
		}
	}
	withoutPrivilege(t, func() {
		o.BudgetBytes = 9 * size
		_, err := New(o)
		tooMuch("New over the limit", err, "bytes are needed", "RLIMIT_MEMLOCK is")

		o.BudgetBytes = 5 * size
		first, err := New(o)
		if err != nil {
			t.Errorf("New within the limit: got error %v", err)
			return
		}
		defer checkEmpty(t, first)
		tooMuch("SetBudget over the limit", first.SetBudget(9*size))
		if got := first.Stats().Budget; got != 5*size {
			t.Errorf("refused budget: got %d, want %d", got, 5*size)
		}
		second, err := New(o) // nothing is lent yet, so both pass
		if err != nil {
			t.Errorf("second New: got error %v", err)
			return
		}
		defer checkEmpty(t, second)
		for i := range 5 {
			fill(t, first, id(0, i), 0)
		}
		for i := range 3 {
			fill(t, second, id(0, i), 0)
		}
		_, err = second.Begin(id(0, 3), Demand, 0)
		tooMuch("Begin over the limit", err, "layer 0 expert 3")
		if s := second.Stats(); s.Used != 3*size || s.Fills != 0 {
			t.Errorf("after it: got %d used, %d fills; want %d, 0", s.Used, s.Fills, 3*size)
		}
	})
}
