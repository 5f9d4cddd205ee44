package layout_test

import (
	"runtime"
	"sync/atomic"
	"testing"

	"outrider/internal/filetest"
	"outrider/layout"
)

// TestRingConformsInACrowd holds the ways of reading to the suite: through the
// ring, by pread, and both in turn, with fewer places than readers and with more.
func TestRingConformsInACrowd(t *testing.T) {
	for name, every := range map[string]int64{"never": 0, "always": 1, "in turns": 2, "seldom": 7} {
		for _, depth := range []int{2, 64} {
			t.Run(name, func(t *testing.T) {
				r := openRing(t, depth)
				var asked atomic.Int64
				r.SetCrowded(func() bool { return every > 0 && asked.Add(1)%every == 0 })
				filetest.Run(t, onDisk(r, layout.Direct))
				if r.Reason() != "" {
					t.Errorf("got reason %q, want none: the ring is whole", r.Reason())
				}
			})
		}
	}
}

// TestRingServesBesideComputing: with goroutines that never stop on every P, what
// is read is right and does end.
func TestRingServesBesideComputing(t *testing.T) {
	var stop atomic.Bool
	done := make(chan struct{})
	procs := runtime.GOMAXPROCS(0)
	for range procs {
		go func() {
			for !stop.Load() {
			}
			done <- struct{}{}
		}()
	}
	path, want := diskFile(t, 1<<20)
	f := openRinged(t, openRing(t, 0), path)
	buf := slot(64 << 10)
	for i := range 10 {
		n, err := f.ReadAt(buf, int64(i)<<16)
		if n != len(buf) || err != nil || string(buf) != string(want[i<<16:][:n]) {
			t.Errorf("got %d bytes and %v, want all", n, err)
		}
	}
	stop.Store(true)
	for range procs {
		<-done
	}
}
