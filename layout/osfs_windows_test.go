package layout_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"outrider/internal/memfs"
	"outrider/layout"
)

// watched is a file system that notes which memory its files read into.
type watched struct {
	layout.FS
	into [][]byte
}

func (w *watched) Open(name string, mode layout.Mode) (layout.File, error) {
	f, err := w.FS.Open(name, mode)
	return watchedFile{f, w}, err
}

type watchedFile struct {
	layout.File
	w *watched
}

func (f watchedFile) ReadAt(p []byte, off int64) (int, error) {
	f.w.into = append(f.w.into, p)
	return f.File.ReadAt(p, off)
}

// TestWindowsAreReadInPlace: tensors of a checkpoint lie anywhere (GGUF aligns
// its data to 32 bytes, safetensors to none). The aligned window around each is
// read straight into the slot, and the tensor is a part of it: the bytes that a
// runner gets are at the very addresses that were read into.
func TestWindowsAreReadInPlace(t *testing.T) {
	for _, align := range []int{1, 512, 4096, 16384} {
		for _, start := range []int64{0, 1, 7, 32, 511, 513, 1152, 4095, 4096 + 1152, 16383} {
			mem := memfs.New(memfs.Options{Align: layout.Alignment{Memory: align, Offset: align}})
			cp, data := checkpointAt(t, mem, start)
			fsys := &watched{FS: mem}
			src, err := layout.OpenInPlace(fsys, cp, layout.Direct)
			if err != nil {
				t.Fatal(err)
			}
			for i := range cp.Shape.Count() {
				id := cp.Shape.ID(i)
				fsys.into = nil
				for j, got := range readExpert(t, src, id) {
					span := cp.Layers[id.Layer].Tensors[j].Span(int(id.Index))
					if !bytes.Equal(got, data[span.Offset:span.Offset+span.Bytes]) {
						t.Errorf("alignment %d, data at %d, %v: got other bytes than the file's", align, start, id)
					}
					if !liesIn(got, fsys.into) {
						t.Errorf("alignment %d, data at %d, %v: got a tensor outside of the memory that was read into: a copy", align, start, id)
					}
				}
				var most int64
				for _, p := range fsys.into {
					most += int64(len(p))
				}
				if need := int64(3*1000 + 3*2*align); most > need {
					t.Errorf("alignment %d, data at %d, %v: got %d bytes read, want at most %d", align, start, id, most, need)
				}
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// checkpointAt is one layer of three experts with three tensors, whose data
// begins at start and keeps no alignment.
func checkpointAt(t *testing.T, mem *memfs.FS, start int64) (layout.Checkpoint, []byte) {
	t.Helper()
	const experts, tensors, size = 3, 3, 997
	data := make([]byte, start+experts*tensors*size)
	rand.NewChaCha8([32]byte{3}).Read(data)
	if err := mem.WriteFile("/m/x.bin", data); err != nil {
		t.Fatal(err)
	}
	var layer layout.CheckpointLayer
	for i := range tensors {
		layer.Tensors = append(layer.Tensors, layout.ExpertTensor{
			Projection: layout.Projection{Name: fmt.Sprint("p", i), Type: "I8", Dims: []int64{size, 1}, Bytes: size},
			Source:     fmt.Sprint("blk.p", i), Offset: start + int64(i)*experts*size,
		})
	}
	return layout.Checkpoint{
		Format: "gguf", Name: "odd", Shape: layout.Shape{Layers: 1, Experts: experts, TopK: 1},
		Layers: []layout.CheckpointLayer{layer},
		Files:  []layout.CheckpointFile{{Path: "/m/x.bin", Size: int64(len(data)), Header: "00"}},
	}, data
}

// liesIn reports whether p is part of one of the ranges.
func liesIn(p []byte, ranges [][]byte) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	for _, r := range ranges {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(r)))
		if at >= from && at+uintptr(len(p)) <= from+uintptr(len(r)) {
			return true
		}
	}
	return false
}

// TestOddRecordsStayDirect: a record of 3029 pages, a multiple of 4 KiB and of
// nothing larger, is read around the page cache, whole and with nothing around it.
func TestOddRecordsStayDirect(t *testing.T) {
	const size = 3029 * 4096
	mem := memfs.New(memfs.Options{})
	cp := source(t, mem, modelSpec{experts: 2, topK: 1, layers: [][]tensorSpec{{{"up", size, false}}}})
	dir := t.TempDir()
	for i, data := range sourceFiles(t, mem, cp) {
		cp.Files[i].Path = filepath.Join(dir, filepath.Base(cp.Files[i].Path))
		if err := os.WriteFile(cp.Files[i].Path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	target := filepath.Join(dir, "m.outrider")
	build(t, layout.OS(), target, cp, layout.PlanOptions{})
	s := open(t, openSystem(t, layout.SystemOptions{}), target, layout.Direct)
	file := s.Lanes()[0].File
	if !layout.IsDirect(file) {
		t.Skipf("no direct reads below %s: %s", dir, layout.FallbackReason(file))
	}
	for e := range int32(2) {
		id := layout.ExpertID{Index: e}
		var p layout.Placement
		if err := s.Locate(id, &p); err != nil {
			t.Fatal(err)
		}
		if len(p.Reads) != 1 || p.Reads[0].Bytes != size || p.Reads[0].Offset%4096 != 0 {
			t.Errorf("%v: got reads %+v, want one of %d bytes", id, p.Reads, size)
		}
		data, err := os.ReadFile(cp.Files[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		span := cp.Layers[0].Tensors[0].Span(int(e))
		if got := readExpert(t, s, id)[0]; !bytes.Equal(got, data[span.Offset:span.Offset+span.Bytes]) {
			t.Errorf("%v: got other bytes than the checkpoint's", id)
		}
	}
	if !layout.IsDirect(file) || layout.FallbackReason(file) != "" {
		t.Errorf("got engine %q because %q after the reads, want direct as before", layout.Engine(file), layout.FallbackReason(file))
	}
}

// TestNoRandomAdviceOnMappings: with it, bulk reads of a mapping become single
// pages. (On a descriptor it only keeps the kernel from reading ahead.)
func TestNoRandomAdviceOnMappings(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), "MADV_"+"RANDOM") {
			t.Errorf("%s advises random access to a mapping", path)
		}
		found++
		return err
	})
	if err != nil || found < 50 {
		t.Errorf("got %d files and %v, want the whole tree", found, err)
	}
}
