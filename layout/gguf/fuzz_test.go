package gguf_test

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/gguf"
)

// seedFiles are small files of each make: versions, byte orders, kinds, types.
func seedFiles(f *testing.F) [][]byte {
	f.Helper()
	seeds := [][]byte{small(f)}
	for _, w := range []*gguf.Writer{{Version: 2}, {Align: 1}, {BigEndian: true, Align: 64}} {
		for _, s := range valueSet {
			w.Set(s.key, s.value)
		}
		add(w, "q", gguf.Q4_0, 32, 2)
		add(w, "scalar", gguf.F64)
		add(w, "four", gguf.I16, 1, 2, 1, 2)
		b, err := w.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		seeds = append(seeds, b)
	}
	w := checkpoint(4, 2)
	stackedLayer(w, 0)
	add(w, "blk.1.ffn_up.0.weight", gguf.F32, 2, 2)
	b, err := w.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	return append(seeds, b)
}

// FuzzOpen: no file may make the reader panic, hang or keep a file open, and
// whatever it accepts must be consistent.
func FuzzOpen(f *testing.F) {
	for _, seed := range seedFiles(f) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": data}}
		if file := fuzzOpen(t, fsys, "m.gguf"); file != nil {
			checkRewritten(t, file)
		}
	})
}

// FuzzOpenShards: nor may two files that say they belong together, opened by
// either of them or by their folder.
func FuzzOpenShards(f *testing.F) {
	const one, two = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
	for _, big := range []bool{false, true} {
		w := &gguf.Writer{BigEndian: big}
		w.Set("general.architecture", "x")
		add(w, "a", gguf.I8, 40)
		add(w, "b", gguf.F32, 4, 2)
		shards := split(f, w, "m", 1, 1)
		f.Add(shards[one], shards[two])
		f.Add(shards[one], shards[two][:60])
		f.Add(shards[two], shards[one])
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		fsys := folder(t, map[string][]byte{one: a, two: b})
		for _, path := range []string{filepath.Join("dir", one), filepath.Join("dir", two), "dir"} {
			fuzzOpen(t, fsys, path)
		}
	})
}

// checkMerged: what could be opened has one header, that of a file with its tensors.
func checkMerged(t *testing.T, file *gguf.File) {
	t.Helper()
	whole, err := file.Merged()
	if file.BigEndian() {
		if !errors.Is(err, gguf.ErrVersion) {
			t.Fatalf("got %v, want %v", err, gguf.ErrVersion)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	align := int(cmp.Or(file.Align(), 32))
	for _, ts := range file.Tensors() {
		whole = append(whole, make([]byte, (int(ts.Bytes)+align-1)/align*align)...)
	}
	merged, err := gguf.Open(&memfs.ReadOnly{Files: map[string][]byte{"m.gguf": whole}}, "m.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(merged.Tensors()), len(file.Tensors()); got != want {
		t.Fatalf("got %d tensors, want %d", got, want)
	}
}

// fuzzOpen opens and checks what may be a checkpoint; nil if it is none.
func fuzzOpen(t *testing.T, fsys layout.FS, path string) *gguf.File {
	t.Helper()
	file, err := gguf.Open(fsys, path)
	if counted, ok := fsys.(*memfs.ReadOnly); ok && counted.Opens.Load() != 0 {
		t.Fatalf("%d files are still open, want 0", counted.Opens.Load())
	}
	if err != nil {
		if !errors.As(err, new(*gguf.FormatError)) {
			t.Fatalf("got %v, want a FormatError", err)
		}
		return nil
	}
	decodeAll(file)
	checkMerged(t, file)
	for _, ts := range file.Tensors() {
		if end := ts.Offset + ts.Bytes; ts.Offset < 0 || ts.Bytes < 1 || end > file.Shards()[ts.Shard].Size {
			t.Fatalf("tensor %q lies at %d to %d of %d", ts.Name, ts.Offset, end, file.Shards()[ts.Shard].Size)
		}
		if err := file.ReadTensor(ts, make([]byte, ts.Bytes)); err != nil {
			t.Fatal(err)
		}
	}
	if cp, err := file.Checkpoint(); err == nil {
		checkSpans(t, cp)
	}
	return file
}

// checkRewritten: what the reader accepts the writer writes, and it reads the same.
func checkRewritten(t *testing.T, file *gguf.File) {
	t.Helper()
	w := &gguf.Writer{BigEndian: !file.BigEndian()}
	for _, key := range file.Keys() {
		if v, _ := file.Meta(key); key != "general.alignment" && key != "split.count" {
			w.Set(key, v)
		}
	}
	for _, ts := range file.Tensors() {
		data := make([]byte, ts.Bytes)
		if err := file.ReadTensor(ts, data); err != nil {
			t.Fatal(err)
		}
		w.TensorBytes(ts.Name, ts.Type, ts.Dims, data)
	}
	again := open(t, oneFile(t, w), "m.gguf")
	for _, key := range again.Keys() {
		a, _ := file.Meta(key)
		b, _ := again.Meta(key)
		sameValue(t, key, a, b)
	}
	for i, ts := range again.Tensors() {
		if was := file.Tensors()[i]; ts.Name != was.Name || ts.Type != was.Type || !slices.Equal(ts.Dims, was.Dims) || ts.Bytes != was.Bytes {
			t.Fatalf("got %+v, want as %+v", ts, was)
		}
	}
}

// FuzzValues: a value of any kind and bytes is refused or decodes, the same in
// either byte order.
func FuzzValues(f *testing.F) {
	for _, s := range valueSet {
		w := &gguf.Writer{}
		w.Set("k", s.value)
		b, err := w.Bytes()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(binary.LittleEndian.Uint32(b[atKind:]), b[atKind+4:])
	}
	empty := &gguf.Writer{}
	empty.Set("k", uint8(0))
	head, err := empty.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind uint32, value []byte) {
		data := binary.LittleEndian.AppendUint32(head[:atKind:atKind], kind)
		file := fuzzOpen(t, &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": append(data, value...)}}, "m.gguf")
		if file != nil {
			checkRewritten(t, file)
		}
	})
}

// sameValue compares by every accessor; floats by their text, since NaN is a value too.
func sameValue(t *testing.T, key string, a, b gguf.Value) {
	t.Helper()
	if got, want := everything(b), everything(a); got != want {
		t.Fatalf("key %q: got %s, want %s", key, got, want)
	}
}

func everything(v gguf.Value) string {
	s, ok1 := v.Str()
	strings, ok2 := v.Strings()
	ints, ok3 := v.Ints()
	floats, ok4 := v.Floats()
	bools, ok5 := v.Bools()
	return fmt.Sprint(v.Kind(), v.Elem(), v.Len(), v.String(), s, ok1, len(strings), strings, ok2, ints, ok3, floats, ok4, bools, ok5)
}

func decodeAll(file *gguf.File) {
	for _, key := range file.Keys() {
		v, _ := file.Meta(key)
		_ = everything(v)
	}
}

func checkSpans(t *testing.T, cp layout.Checkpoint) {
	t.Helper()
	if err := cp.Shape.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, l := range cp.Layers {
		for _, et := range l.Tensors {
			for e := range cp.Shape.Experts {
				s := et.Span(e)
				if s.Bytes != et.Bytes || s.Bytes < 1 || s.Offset < 0 || s.Offset+s.Bytes > cp.Files[s.File].Size {
					t.Fatalf("%s of expert %d: span %v, want %d bytes inside the file", et.Name, e, s, et.Bytes)
				}
			}
		}
	}
}

// Real files stay as they are under reading.
func TestOpenLeavesFileUnchanged(t *testing.T) {
	path := dataFile(t, "tinymoe-q8_0.gguf")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	open(t, layout.OS(), path)
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if before.ModTime() != after.ModTime() || before.Size() != after.Size() {
		t.Errorf("got %v %d bytes, want %v %d", after.ModTime(), after.Size(), before.ModTime(), before.Size())
	}
}
