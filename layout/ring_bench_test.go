//go:build linux

package layout_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

const (
	benchFile   = 64 << 20
	benchRounds = 3 // engines take turns, so that a slow spell of the disk hits both
)

// engines opens one file of 64 MiB with both engines.
func engines(b *testing.B) map[string]layout.File {
	b.Helper()
	path := filepath.Join(b.TempDir(), "data")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 1<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for range benchFile / len(block) {
		for i := range block {
			block[i] = byte(rng.Uint32())
		}
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	ring, err := layout.OpenRing(layout.RingOptions{})
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { ring.Close() })
	files := map[string]layout.File{"pread": openDirect(b, layout.OS(), path)}
	ringed, err := ring.Open(path, layout.Direct)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ringed.Close() })
	files["ring"] = ringed
	return files
}

// hugeSlots is n slots of size bytes, off the heap and in huge pages.
func hugeSlots(b testing.TB, n, size int) [][]byte {
	b.Helper()
	const huge = 2 << 20
	mem, err := unix.Mmap(-1, 0, n*size+2*huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Munmap(mem) })
	body := mem[-uintptr(unsafe.Pointer(unsafe.SliceData(mem)))&(huge-1):]
	_ = unix.Madvise(body[:n*size/huge*huge+huge], unix.MADV_HUGEPAGE)
	clear(body[:n*size])
	slots := make([][]byte, n)
	for i := range slots {
		slots[i] = body[i*size:][:size:size]
	}
	return slots
}

// compute spins until stop, and counts its rounds: what a model would compute.
func compute(rounds *atomic.Int64, stop *atomic.Bool) {
	x := uint64(1)
	for !stop.Load() {
		x = spin(x)
		rounds.Add(1)
	}
}

//go:noinline
func spin(x uint64) uint64 {
	for range 2_000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x
}

// spinSeconds is what a round costs: the quickest of some.
func spinSeconds() float64 {
	const calls = 100
	best := time.Hour
	for x, i := uint64(1), 0; i < 50; i++ {
		start := time.Now()
		for range calls {
			x = spin(x)
		}
		best = min(best, time.Since(start))
	}
	return best.Seconds() / calls
}

// cpuSeconds is what the process has used.
func cpuSeconds() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// BenchmarkEngines reads at random offsets while another goroutine computes
// without pause. "compute/s" is how many rounds that one got done, and
// "cpu-s/GiB" what the process used beyond them; a core that clocks down
// between the two makes it too large.
//
// A trial of the same kind, 8 readers, 2 cores, engines taking turns, medians of
// 5 rounds, ring ÷ pread, with 0, 1 and 2 goroutines that compute:
//
//	                GOMAXPROCS=2                        GOMAXPROCS=3
//	         rate            CPU per GiB         rate            CPU per GiB
//	64 KiB   1.24 1.43 0.58  0.94 0.63 1.48      0.81 0.74 0.73  1.15 0.90 1.27
//	 1 MiB   0.95 1.21 0.75  0.82 0.39 1.33      0.99 0.82 0.73  0.98 0.96 1.49
//	 4 MiB   1.05 0.97 0.75  0.56 0.79 1.14      0.92 0.84 0.93  0.70 0.59 1.11
//
// Beside the ring, the goroutines that compute got 1.1 to 2.1 times as much done.
func BenchmarkEngines(b *testing.B) {
	files := engines(b)
	for _, size := range []int{64 << 10, 1 << 20, 4 << 20} {
		for _, readers := range []int{1, 4, 8} {
			for round := range benchRounds {
				for _, name := range []string{"pread", "ring"} {
					b.Run(fmt.Sprintf("%dKiB/readers=%d/round=%d/%s", size>>10, readers, round, name), func(b *testing.B) {
						benchReaders(b, files[name], size, readers)
					})
				}
			}
		}
	}
}

func benchReaders(b *testing.B, f layout.File, size, readers int) {
	slots, round := hugeSlots(b, readers, size), spinSeconds()
	var rounds, next atomic.Int64
	var stop atomic.Bool
	var spinner, wg sync.WaitGroup
	spinner.Go(func() { compute(&rounds, &stop) })
	times := make([]time.Duration, b.N)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	runtime.GC()
	before, cpu, begin := rounds.Load(), cpuSeconds(), time.Now()
	b.ResetTimer()
	for i := range readers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				off := rng.Int64N((benchFile-int64(size))/4096) * 4096
				start := time.Now()
				if _, err := f.ReadAt(slots[i], off); err != nil {
					b.Error(err)
					return
				}
				times[n-1] = time.Since(start)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	wall := time.Since(begin).Seconds()
	cpu, done := cpuSeconds()-cpu, float64(rounds.Load()-before)
	stop.Store(true)
	spinner.Wait()
	reportTimes(b, times)
	b.ReportMetric((cpu-done*round)/(float64(b.N)*float64(size)/(1<<30)), "cpu-s/GiB")
	b.ReportMetric(done/wall, "compute/s")
}

func reportTimes(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	b.ReportMetric(us(times[len(times)/2]), "p50-µs")
	b.ReportMetric(us(times[len(times)*99/100]), "p99-µs")
}

// BenchmarkLayerWait models a layer: three reads at once by three workers, wait
// for all, compute 300 µs, again. "wait-µs" is the mean of the waits. With busy=1
// another goroutine computes all the time, and with busy=2 two of them do. Run it
// with -cpu 2,3 for the cores and one P more.
//
// Medians in µs of 420 waits each, 2 cores, engines taking turns, busy=0, 1 and 2.
// "Parked" is a ring that never reads by pread. Variants that did no better: the
// ring's own goroutine blocked in io_uring_enter (20,000 at busy=2), and one
// reader that waits there for all (as pread in this benchmark, but well under half
// of its rate with 8 readers).
//
//	                    GOMAXPROCS=2          GOMAXPROCS=3
//	64 KiB   pread      202  345    233       280  302  436
//	         ring       255  157    240       249  198  242
//	         parked     256  155  40242       249  196  239
//	 1 MiB   pread      774  781   1026       677  786  766
//	         ring       628  755    989       650  619  578
//	         parked     631  534  40300       688  599  549
func BenchmarkLayerWait(b *testing.B) {
	files := engines(b)
	for _, size := range []int{64 << 10, 1 << 20} {
		for busy := range 3 {
			for round := range benchRounds {
				for _, name := range []string{"pread", "ring"} {
					b.Run(fmt.Sprintf("%dKiB/busy=%d/round=%d/%s", size>>10, busy, round, name), func(b *testing.B) {
						benchLayers(b, files[name], size, busy)
					})
				}
			}
		}
	}
}

func benchLayers(b *testing.B, f layout.File, size, busy int) {
	const reads = 3
	slots := hugeSlots(b, reads, size)
	var rounds atomic.Int64
	var stop atomic.Bool
	var spinners, workers sync.WaitGroup
	for range busy {
		spinners.Go(func() { compute(&rounds, &stop) })
	}
	asked, done := make(chan int64, reads), make(chan error, reads)
	for i := range reads {
		workers.Go(func() {
			for off := range asked {
				_, err := f.ReadAt(slots[i], off)
				done <- err
			}
		})
	}
	rng := rand.New(rand.NewPCG(5, 6))
	times := make([]time.Duration, 0, b.N)
	var sum time.Duration
	b.SetBytes(int64(reads * size))
	runtime.GC()
	cpu := cpuSeconds()
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		for range reads {
			asked <- rng.Int64N((benchFile-int64(size))/4096) * 4096
		}
		for range reads {
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		wait := time.Since(start)
		times, sum = append(times, wait), sum+wait
		for start := time.Now(); time.Since(start) < 300*time.Microsecond; {
		}
	}
	b.StopTimer()
	cpu = cpuSeconds() - cpu
	close(asked)
	workers.Wait()
	stop.Store(true)
	spinners.Wait()
	reportTimes(b, times)
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "wait-µs")
	b.ReportMetric(cpu*1e6/float64(b.N), "cpu-µs/layer")
}
