package filetest

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"outrider/internal/device"
	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

// opener makes files of a memory file system, behind what wrap puts before it.
func opener(align layout.Alignment, wrap func(layout.FS) layout.FS) func(t *testing.T, content []byte) layout.File {
	return func(t *testing.T, content []byte) layout.File {
		mem := memfs.New(memfs.Options{Align: align})
		if err := mem.WriteFile("/f", content); err != nil {
			t.Fatal(err)
		}
		f, err := wrap(mem).Open("/f", layout.Direct)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

var aligns = map[string]layout.Alignment{
	"buffered": {}, "512": {Memory: 512, Offset: 512}, "4096": {Memory: 4096, Offset: 4096},
	"16384": {Memory: 16384, Offset: 16384}, "4 in memory": {Memory: 4, Offset: 512}, "4096 in memory": {Memory: 4096, Offset: 512},
}

var fewAligns = map[string]layout.Alignment{"buffered": {}, "4096 in memory": {Memory: 4096, Offset: 512}}

func TestMemory(t *testing.T) {
	for name, align := range aligns {
		t.Run(name, func(t *testing.T) { Run(t, opener(align, func(f layout.FS) layout.FS { return f })) })
	}
}

func TestFaultsWithoutRules(t *testing.T) {
	for name, align := range fewAligns {
		t.Run(name, func(t *testing.T) { Run(t, opener(align, func(f layout.FS) layout.FS { return faultfs.New(f) })) })
	}
}

func TestDevice(t *testing.T) {
	for name, align := range fewAligns {
		t.Run(name, func(t *testing.T) {
			RunIn(t, synctest.Test, opener(align, func(f layout.FS) layout.FS {
				drive := device.New(device.Model{BytesPerSecond: 1e9, Latency: 50 * time.Microsecond, Depth: 4})
				return &device.FS{Base: f, Place: func(string) *device.Drive { return drive }}
			}))
		})
	}
}

// broken is a good file with one fault.
type broken struct {
	layout.VectorFile
	readAt func(f layout.File, p []byte, off int64) (int, error)
	readV  func(f layout.VectorFile, bufs [][]byte, off int64) (int, error)
	direct layout.Alignment
	size   int64
}

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if b.readAt == nil {
		return b.VectorFile.ReadAt(p, off)
	}
	return b.readAt(b.VectorFile, p, off)
}

func (b broken) ReadVAt(bufs [][]byte, off int64) (int, error) {
	if b.readV == nil {
		return b.VectorFile.ReadVAt(bufs, off)
	}
	return b.readV(b.VectorFile, bufs, off)
}

func (b broken) Direct() layout.Alignment {
	if b.direct != (layout.Alignment{}) {
		return b.direct
	}
	return b.VectorFile.Direct()
}

func (b broken) Size() int64 { return b.VectorFile.Size() + b.size }

// TestTheSuiteFindsFaults: each kind of wrong file fails the check that is meant for it.
func TestTheSuiteFindsFaults(t *testing.T) {
	align := layout.Alignment{Memory: 512, Offset: 512}
	wide := layout.Alignment{Memory: 4096, Offset: 512}
	for _, test := range []struct {
		name, check string
		file        broken
		align       layout.Alignment
	}{
		{"none", "", broken{}, align},
		{"wrong size", "Describes", broken{size: 1}, align},
		{"odd alignment", "Describes", broken{direct: layout.Alignment{Memory: 3, Offset: 1}}, layout.Alignment{}},
		{"wrong last byte", "Ranges", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) {
			n, err := f.ReadAt(p, off)
			if n > 0 && n == len(p) {
				p[n-1]++
			}
			return n, err
		}}, layout.Alignment{}},
		{"claims without reading", "Ranges", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) { return len(p), nil }}, align},
		{"short without an error", "Ranges", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) {
			n, _ := f.ReadAt(p, off)
			return max(n-1, 0), nil
		}}, layout.Alignment{}},
		{"needs more than it says", "Ranges", broken{direct: align}, wide},
		{"reads in front of the buffer", "Ranges", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) {
			n, err := f.ReadAt(p, off)
			if n > 0 {
				*(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(p)), -1)) = 0
			}
			return n, err
		}}, layout.Alignment{}},
		{"no end", "End", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) {
			n, err := f.ReadAt(p, off)
			if err == io.EOF {
				err = nil
			}
			return n, err
		}}, align},
		{"vector in another order", "Vectors", broken{readV: func(f layout.VectorFile, bufs [][]byte, off int64) (int, error) {
			if len(bufs) > 2 && len(bufs[0]) == len(bufs[1]) {
				bufs = append([][]byte{bufs[1], bufs[0]}, bufs[2:]...)
			}
			return f.ReadVAt(bufs, off)
		}}, align},
		{"vector stops at an empty buffer", "Vectors", broken{readV: func(f layout.VectorFile, bufs [][]byte, off int64) (int, error) {
			for i := range bufs {
				if len(bufs[i]) == 0 {
					return f.ReadVAt(bufs[:i], off)
				}
			}
			return f.ReadVAt(bufs, off)
		}}, align},
		{"any number of buffers", "Refusals", broken{readV: func(f layout.VectorFile, bufs [][]byte, off int64) (int, error) {
			return f.ReadVAt(bufs[:min(len(bufs), layout.MaxVector)], off)
		}}, align},
		{"before the start is the start", "Refusals", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) {
			return f.ReadAt(p, max(off, 0))
		}}, align},
		{"takes odd offsets", "Unaligned", broken{direct: align}, layout.Alignment{}},
		{"says nothing of the end", "Nothing", broken{readAt: func(f layout.File, p []byte, off int64) (int, error) {
			if len(p) == 0 {
				return 0, io.ErrUnexpectedEOF
			}
			return f.ReadAt(p, off)
		}}, align},
	} {
		failed := map[string]error{}
		for _, c := range checks {
			if err := c.run(func(content []byte) layout.File {
				b := test.file
				b.VectorFile = opener(test.align, func(f layout.FS) layout.FS { return f })(t, content).(layout.VectorFile)
				return b
			}); err != nil {
				failed[c.name] = err
			}
		}
		if (test.check == "" && len(failed) > 0) || (test.check != "" && failed[test.check] == nil) {
			t.Errorf("%s: got failures %v, want %q", test.name, failed, test.check)
		}
	}
}

// plain hides that a file takes vectors, and keeps reading when closed.
type plain struct{ layout.File }

func (plain) Close() error { return nil }

func TestTheSuiteWantsVectorsAndAnEnd(t *testing.T) {
	open := func(content []byte) layout.File {
		return plain{opener(layout.Alignment{}, func(f layout.FS) layout.FS { return f })(t, content)}
	}
	if err := vectors(open); err == nil {
		t.Error("got no failure of a file without vectors, want one")
	}
	if err := afterClose(open); err == nil {
		t.Error("got no failure of a file that reads after Close, want one")
	}
}
