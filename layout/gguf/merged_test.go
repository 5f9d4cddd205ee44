package gguf_test

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/gguf"
)

// The header is what the whole file begins with, and no tensor's bytes are made.
func TestWriterHeader(t *testing.T) {
	for _, w := range []*gguf.Writer{{}, {Align: 4096}, {Version: 2}, {BigEndian: true}} {
		w.Set("general.architecture", "x")
		if header, whole := bothOf(t, w); !bytes.Equal(header, whole) {
			t.Errorf("%+v: without tensors: got a header of %d bytes, want the whole file of %d", w, len(header), len(whole))
		}
		add(w, "a", gguf.Q8_0, 32, 5)
		add(w, "b", gguf.F32, 3)
		header, whole := bothOf(t, w)
		f := open(t, &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": whole}}, "m.gguf")
		if a, _ := f.Tensor("a"); a.Offset != int64(len(header)) || !bytes.HasPrefix(whole, header) {
			t.Errorf("%+v: got a header of %d bytes, want the %d before the first tensor", w, len(header), a.Offset)
		}
	}
	called := false
	w := &gguf.Writer{}
	w.Tensor("huge", gguf.F32, []int64{1 << 50}, func(io.Writer) error { called = true; return nil })
	if header, err := w.Header(); err != nil || len(header)%32 != 0 || called {
		t.Errorf("got %d bytes, %v, the tensor's function called: %v", len(header), err, called)
	}
	w.Set("", "a")
	if _, err := w.Header(); err == nil || !strings.Contains(err.Error(), "a key of 0 bytes") {
		t.Errorf("got %v, want an error as when writing", err)
	}
}

func bothOf(t *testing.T, w *gguf.Writer) (header, whole []byte) {
	t.Helper()
	header, err := w.Header()
	if err != nil {
		t.Fatal(err)
	}
	if whole, err = w.Bytes(); err != nil {
		t.Fatal(err)
	}
	return header, whole
}

// Shards merge into the header of the file that was split.
func TestMerged(t *testing.T) {
	for _, w := range []*gguf.Writer{{}, {Align: 4096}, {Version: 2, Align: 32}} {
		w.Set("general.architecture", "x")
		for _, v := range valueSet {
			w.Set(v.key, v.value)
		}
		for i, name := range []string{"a", "b", "c", "d"} {
			add(w, name, gguf.Q8_0, 32, int64(i+1), 3)
		}
		want, whole := bothOf(t, w)
		files := split(t, w, "m", 2, 1, 1)
		files["m.gguf"] = whole
		fsys := &memfs.ReadOnly{Files: files}
		for _, path := range []string{"m.gguf", gguf.ShardName("m", 1, 3)} {
			got, err := open(t, fsys, path).Merged()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%+v, %s: got %d bytes that differ from the %d of the whole file (%v)", w, path, len(got), len(want), err)
			}
		}
	}
}

// Models of llama.cpp, one of them as it was split: the header, and after it all
// tensors, are one file with the same content.
func TestMergedTinymoe(t *testing.T) {
	for _, name := range []string{"tinymoe-q8_0.gguf", "tinymoe-q4_k_m-00002-of-00003.gguf"} {
		t.Run(name, func(t *testing.T) {
			from := open(t, layout.OS(), dataFile(t, name))
			whole, err := from.Merged()
			if err != nil {
				t.Fatal(err)
			}
			for _, ts := range from.Tensors() {
				data := bytesOf(t, from, ts)
				whole = append(whole, data...)
				whole = append(whole, make([]byte, -len(whole)&31)...)
			}
			to := open(t, &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": whole}}, "m.gguf")
			for key, value := range from.ModelMeta() {
				if got, _ := to.Meta(key); !reflect.DeepEqual(got, value) {
					t.Errorf("%s: got %v, want %v", key, got, value)
				}
			}
			if got, want := to.Tensors(), from.Tensors(); len(got) != len(want) || len(to.Shards()) != 1 || to.Align() != from.Align() {
				t.Fatalf("got %d tensors in %d files aligned to %d, want %d in one, %d", len(got), len(to.Shards()), to.Align(), len(want), from.Align())
			}
			for i, ts := range from.Tensors() {
				got := to.Tensors()[i]
				if got.Name != ts.Name || got.Type != ts.Type || !slices.Equal(got.Dims, ts.Dims) || !bytes.Equal(bytesOf(t, to, got), bytesOf(t, from, ts)) {
					t.Errorf("got %+v, want %+v with the same bytes", got, ts)
				}
			}
		})
	}
}

func bytesOf(t *testing.T, f *gguf.File, ts gguf.Tensor) []byte {
	t.Helper()
	data := make([]byte, ts.Bytes)
	if err := f.ReadTensor(ts, data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestMergedErrors(t *testing.T) {
	w := &gguf.Writer{BigEndian: true}
	add(w, "a", gguf.F32, 10)
	_, err := open(t, oneFile(t, w), "m.gguf").Merged()
	if !errors.Is(err, gguf.ErrVersion) || !strings.Contains(err.Error(), "m.gguf") || !strings.Contains(err.Error(), "gguf-convert-endian") {
		t.Errorf("got %v, want %v with the file and the remedy", err, gguf.ErrVersion)
	}
}

func TestModelMeta(t *testing.T) {
	w := &gguf.Writer{Align: 64}
	w.Set("general.architecture", "x")
	w.Set("splitting", "kept")
	add(w, "a", gguf.F32, 10)
	add(w, "b", gguf.F32, 10)
	f := open(t, &memfs.ReadOnly{Files: split(t, w, "m", 1, 1)}, gguf.ShardName("m", 0, 2))
	var keys []string
	for key, value := range f.ModelMeta() {
		if own, _ := f.Meta(key); own.String() != value.String() {
			t.Errorf("%s: got %v, want %v", key, value, own)
		}
		keys = append(keys, key)
	}
	if want := []string{"general.architecture", "splitting"}; !slices.Equal(keys, want) || f.Align() != 64 || len(f.Keys()) != 6 {
		t.Errorf("got %v, alignment %d, of %v; want %v and 64", keys, f.Align(), f.Keys(), want)
	}
	for range f.ModelMeta() {
		break
	}
	plain := &gguf.Writer{}
	if n := open(t, oneFile(t, plain), "m.gguf").Align(); n != 0 {
		t.Errorf("got alignment %d of a file that does not say it, want 0", n)
	}
}
