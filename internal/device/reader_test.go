package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/internal/filetest"
	"outrider/internal/memfs"
	"outrider/internal/readertest"
	"outrider/layout"
)

// severalFile opens files of one drive that have a reader.
func severalFile(t *testing.T, content []byte) layout.File {
	mem := memfs.New(memfs.Options{})
	if err := mem.WriteFile("/f", content); err != nil {
		t.Fatal(err)
	}
	f, err := mem.Open("/f", layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	return device.New(device.Model{BytesPerSecond: 1e9, Latency: 50 * time.Microsecond, Depth: 4, Several: true}).File(f)
}

func TestReaderConforms(t *testing.T) {
	readertest.Run(t, synctest.Test, severalFile)
	filetest.RunIn(t, synctest.Test, func(t *testing.T, content []byte) layout.File {
		return readertest.Through(severalFile(t, content))
	})
}

// Reads of one reader overlap in the drive as those of several goroutines do.
func TestReaderTakesTheDrivesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(memfs.Options{})
		if err := mem.WriteFile("/f", make([]byte, 4000)); err != nil {
			t.Fatal(err)
		}
		base, err := mem.Open("/f", layout.Direct)
		if err != nil {
			t.Fatal(err)
		}
		d := device.New(device.Model{BytesPerSecond: 1e6, Latency: 5 * time.Millisecond, Several: true,
			Rule: device.Script(device.Effect{}, device.Effect{Panic: true})})
		f := d.File(base)
		r := layout.NewReader(f)
		start := time.Now()
		r.Start(f, 0, [][]byte{make([]byte, 1000)}, 0)
		if _, n, err := r.Wait(); n != 1000 || err != nil || time.Since(start) != 6*time.Millisecond {
			t.Errorf("got %d bytes and %v after %v, want 1000 after 6ms", n, err, time.Since(start))
		}
		r.Start(f, 1, [][]byte{make([]byte, 1000)}, 0)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("got no panic, want the read's")
				}
			}()
			r.Wait()
		}()
		start = time.Now()
		for tag := range 4 {
			r.Start(f, tag, [][]byte{make([]byte, 1000)}, 0)
		}
		for range 4 {
			r.Wait()
		}
		if took := time.Since(start); took != 9*time.Millisecond || d.Stats().Peak != 4 {
			t.Errorf("four at once: got %v and a peak of %d, want 9ms and 4", took, d.Stats().Peak)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
