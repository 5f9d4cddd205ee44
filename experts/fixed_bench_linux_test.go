package experts

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"outrider/layout"
)

// fixedArms are the memories that these benchmarks compare.
var fixedArms = []struct {
	name string
	make func(b *testing.B, o Options) Memory
}{
	{"pooled", func(*testing.B, Options) Memory { return nil }},
	{"moved", func(b *testing.B, o Options) Memory { return benchMemory(b, o, mappingsToSpend()) }},
	// The same addresses and huge pages, but each eviction gives its pages back.
	{"given", func(b *testing.B, o Options) Memory {
		m := benchMemory(b, o, mappingsToSpend())
		m.remap = nil
		return m
	}},
	// One expert behind the other, as where the kernel has too few mappings.
	{"packed", func(b *testing.B, o Options) Memory { return benchMemory(b, o, 0) }},
}

func benchMemory(b *testing.B, o Options, mappings int64) *FixedMemory {
	m, err := newFixedMemory(o.Shape, o.Bytes, mappings)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// benchSizes are the slots of a widened and of two usual models, and of the shipped one.
var benchSizes = []int64{6 * mib, 3276800, mib, 52 << 10}

// fullCache holds 24 of 64 experts.
func fullCache(b *testing.B, size int64, memory func(*testing.B, Options) Memory) *Cache {
	o := Options{Shape: layout.Shape{Layers: 1, Experts: 64, TopK: 8}, Bytes: []int64{size}, BudgetBytes: 24 * size}
	o.Memory = memory(b, o)
	c := newTestCache(b, o)
	for i := range 2 * o.Shape.Experts { // so that each address was used
		evictAndFill(b, c, i, touch)
	}
	return c
}

// evictAndFill reads the next expert that is absent, in place of another.
func evictAndFill(b *testing.B, c *Cache, i int, read func([]byte)) {
	f, err := c.Begin(id(0, i%64), Demand, 0)
	if err != nil {
		b.Fatal(err)
	}
	read(f.Bytes())
	if err := f.Commit(nil, nil); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFixedEvict is the steady state of a full cache, in which each page of a
// slot is written once as the drive would: time, page faults and processor time of
// the kernel for one expert.
func BenchmarkFixedEvict(b *testing.B) {
	for _, size := range benchSizes {
		for _, arm := range fixedArms {
			b.Run(fmt.Sprintf("%dKiB/%s", size>>10, arm.name), func(b *testing.B) {
				c := fullCache(b, size, arm.make)
				before := usage(b)
				n := 0
				for b.Loop() {
					evictAndFill(b, c, n, touch)
					n++
				}
				used := usage(b).since(before)
				b.ReportMetric(float64(used.faults)/float64(n), "faults/op")
				b.ReportMetric(used.system.Seconds()*1e6/float64(n), "sys-us/op")
			})
		}
	}
}

// BenchmarkFixedReads reads a file of 512 MiB directly into the steady state of a full
// cache, the arms in turn: bytes a second, and seconds of processor time for a GiB.
func BenchmarkFixedReads(b *testing.B) {
	const fileBytes = 512 * mib
	f := openBenchFile(b, fileBytes)
	for _, size := range benchSizes {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			caches := make([]*Cache, len(fixedArms))
			for i, arm := range fixedArms {
				caches[i] = fullCache(b, size, arm.make)
			}
			took, used := make([]time.Duration, len(caches)), make([]resources, len(caches))
			batch := int(96 * mib / size)
			at, n := int64(0), 0
			read := func(p []byte) {
				if at+size > fileBytes {
					at = 0
				}
				if _, err := f.ReadAt(p, at); err != nil {
					b.Fatal(err)
				}
				at += size
			}
			for b.Loop() {
				for i, c := range caches {
					before, start := usage(b), time.Now()
					for k := range batch {
						evictAndFill(b, c, n*batch+k, read)
					}
					took[i] += time.Since(start)
					used[i] = used[i].plus(usage(b).since(before))
				}
				n++
			}
			for i, arm := range fixedArms {
				all := float64(n) * float64(batch) * float64(size)
				b.ReportMetric(all/1e6/took[i].Seconds(), arm.name+"-MB/s")
				b.ReportMetric((used[i].system+used[i].user).Seconds()*(1<<30)/all, arm.name+"-cpu-s/GiB")
				b.ReportMetric(float64(used[i].faults)/float64(n*batch), arm.name+"-faults")
			}
		})
	}
}

// openBenchFile writes a file and opens it for direct reads.
func openBenchFile(b *testing.B, bytes int64) layout.File {
	name := filepath.Join(b.TempDir(), "experts")
	w, err := os.Create(name)
	if err != nil {
		b.Fatal(err)
	}
	chunk := make([]byte, 4*mib)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	for at := int64(0); at < bytes && err == nil; at += int64(len(chunk)) {
		_, err = w.Write(chunk)
	}
	if err == nil {
		err = w.Sync()
	}
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		b.Fatal(err)
	}
	f, err := layout.OS().Open(name, layout.Direct)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() })
	if f.Direct() == (layout.Alignment{}) {
		b.Skip("no direct reads here")
	}
	return f
}

// resources are what the process has used.
type resources struct {
	user, system time.Duration
	faults       int64 // that needed no read
}

func usage(b *testing.B) resources {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return resources{user: time.Duration(u.Utime.Nano()), system: time.Duration(u.Stime.Nano()), faults: int64(u.Minflt)}
}

func (r resources) since(o resources) resources {
	return resources{r.user - o.user, r.system - o.system, r.faults - o.faults}
}

func (r resources) plus(o resources) resources {
	return resources{r.user + o.user, r.system + o.system, r.faults + o.faults}
}
