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

// BenchmarkEngines reads at random offsets, so many at once, while another goroutine
// computes without pause: by pread with a goroutine for each, or by one goroutine
// with a Reader. "compute/s" is how many rounds the computing one got done, and
// "cpu-s/GiB" what the process used beyond them; a core that clocks down
// between the two makes it too large.
func BenchmarkEngines(b *testing.B) {
	files := engines(b)
	for _, size := range []int{64 << 10, 1 << 20, 4 << 20} {
		for _, depth := range []int{1, 4, 8} {
			for round := range benchRounds {
				for _, name := range []string{"pread", "ring"} {
					b.Run(fmt.Sprintf("%dKiB/depth=%d/round=%d/%s", size>>10, depth, round, name), func(b *testing.B) {
						benchDepth(b, files[name], size, depth)
					})
				}
			}
		}
	}
}

func benchDepth(b *testing.B, f layout.File, size, depth int) {
	slots, round := hugeSlots(b, depth, size), spinSeconds()
	var rounds atomic.Int64
	var stop atomic.Bool
	var spinner sync.WaitGroup
	spinner.Go(func() { compute(&rounds, &stop) })
	b.SetBytes(int64(size))
	b.ReportAllocs()
	runtime.GC()
	before, cpu, begin := rounds.Load(), cpuSeconds(), time.Now()
	b.ResetTimer()
	times := readDeep(b, f, slots, b.N)
	b.StopTimer()
	wall := time.Since(begin).Seconds()
	cpu, done := cpuSeconds()-cpu, float64(rounds.Load()-before)
	stop.Store(true)
	spinner.Wait()
	reportTimes(b, times)
	b.ReportMetric((cpu-done*round)/(float64(b.N)*float64(size)/(1<<30)), "cpu-s/GiB")
	b.ReportMetric(done/wall, "compute/s")
}

// place is a random one for a read of so many bytes.
func place(rng *rand.Rand, size int) int64 { return rng.Int64N((benchFile-int64(size))/4096) * 4096 }

// readDeep reads n times, as many at once as there are slots, and returns how long
// each read took.
func readDeep(b *testing.B, f layout.File, slots [][]byte, n int) []time.Duration {
	times := make([]time.Duration, n)
	if r := layout.NewReader(f); r != nil {
		defer r.Close()
		readAhead(b, f, r, slots, times)
		return times
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range slots {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				start := time.Now()
				if _, err := f.ReadAt(slots[i%int64(len(slots))], place(rng, len(slots[0]))); err != nil {
					b.Error(err)
					return
				}
				times[i-1] = time.Since(start)
			}
		})
	}
	wg.Wait()
	return times
}

func readAhead(b *testing.B, f layout.File, r layout.Reader, slots [][]byte, times []time.Duration) {
	rng := rand.New(rand.NewPCG(3, 4))
	began, bufs, begun := make([]time.Time, len(slots)), make([][][]byte, len(slots)), 0
	start := func(tag int) {
		began[tag], bufs[tag] = time.Now(), slots[tag:tag+1]
		r.Start(f, tag, bufs[tag], place(rng, len(slots[0])))
		begun++
	}
	for tag := range min(len(slots), len(times)) {
		start(tag)
	}
	for ended := range times {
		tag, _, err := r.Wait()
		if err != nil {
			b.Fatal(err)
		}
		times[ended] = time.Since(began[tag])
		if begun < len(times) {
			start(tag)
		}
	}
}

func reportTimes(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	b.ReportMetric(us(times[len(times)/2]), "p50-µs")
	b.ReportMetric(us(times[len(times)*99/100]), "p99-µs")
}

// BenchmarkLayerWait models a layer: three reads at once by three workers with pread,
// or by one with a Reader; wait for all, compute 300 µs, again. "wait-µs" is the mean
// of the waits. With busy=1 another goroutine computes all the time, and with busy=2
// two of them do. Run it with -cpu 2,3 for the cores and one P more.
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

// layerReads is how many reads a layer of BenchmarkLayerWait waits for.
const layerReads = 3

func benchLayers(b *testing.B, f layout.File, size, busy int) {
	slots := hugeSlots(b, layerReads, size)
	var rounds atomic.Int64
	var stop atomic.Bool
	var spinners, workers sync.WaitGroup
	for range busy {
		spinners.Go(func() { compute(&rounds, &stop) })
	}
	asked, done := make(chan int64, layerReads), make(chan error, layerReads)
	if r := layout.NewReader(f); r != nil {
		workers.Go(func() { readLayers(f, r, slots, asked, done) })
	} else {
		for i := range layerReads {
			workers.Go(func() {
				for off := range asked {
					_, err := f.ReadAt(slots[i], off)
					done <- err
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	times := make([]time.Duration, 0, b.N)
	var sum time.Duration
	b.SetBytes(int64(layerReads * size))
	runtime.GC()
	cpu := cpuSeconds()
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		for range layerReads {
			asked <- place(rng, size)
		}
		for range layerReads {
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

// readLayers takes all reads that are asked for, and tells of each that ended.
func readLayers(f layout.File, r layout.Reader, slots [][]byte, asked chan int64, done chan error) {
	defer r.Close()
	for off := range asked {
		under := 0
		for more := true; more; {
			r.Start(f, under, slots[under:under+1], off)
			under++
			select {
			case off, more = <-asked:
			default:
				more = false
			}
		}
		for range under {
			_, _, err := r.Wait()
			done <- err
		}
	}
}
