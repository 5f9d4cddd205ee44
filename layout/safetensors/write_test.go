package safetensors_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/internal/memfs"
	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/safetensors"
)

// The exact bytes of a small file, by the format's specification.
func TestWriteBytes(t *testing.T) {
	for _, c := range []struct {
		name         string
		w            safetensors.Writer
		length       byte
		header, data string
	}{
		{"as added", safetensors.Writer{}, 248, `{"__metadata__":{"format":"pt"},"b<":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"a":{"dtype":"F32","shape":[],"data_offsets":[3,7]},` +
			`"z":{"dtype":"Q9","shape":[2,2],"data_offsets":[7,8]},"n":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]}}` + "  ", "\x01\x02\x03abcd\x09"},
		{"sorted, no padding", safetensors.Writer{Sort: true, Unpadded: true}, 246, `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},` +
			`"n":{"dtype":"F32","shape":[0,4],"data_offsets":[4,4]},"b<":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},"z":{"dtype":"Q9","shape":[2,2],"data_offsets":[7,8]}}`, "abcd\x01\x02\x03\x09"},
	} {
		c.w.Meta("format", "pt")
		c.w.TensorBytes("b<", "U8", []int64{3}, []byte{1, 2, 3})
		c.w.Tensor("a", "F32", nil, func(out io.Writer) error {
			_, err := io.WriteString(out, "ab")
			_, err2 := io.WriteString(out, "cd")
			return errors.Join(err, err2)
		})
		c.w.TensorBytes("z", "Q9", []int64{2, 2}, []byte{9})
		c.w.TensorBytes("n", "F32", []int64{0, 4}, nil)
		for range 2 { // the same twice
			var got bytes.Buffer
			n, err := c.w.WriteTo(&got)
			if err != nil || n != int64(got.Len()) {
				t.Fatalf("%s: got %d bytes and %v, want the %d that were written", c.name, n, err, got.Len())
			}
			want := string([]byte{c.length, 0, 0, 0, 0, 0, 0, 0}) + c.header + c.data
			if d := cmp.Diff(want, got.String()); d != "" {
				t.Errorf("%s: the file differs (-want +got):\n%s", c.name, d)
			}
		}
	}
}

// What Hugging Face's own writer made of the test model comes out the same byte for byte.
func TestWriteEqualsReference(t *testing.T) {
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		path := testfiles.Shared(t, "tinymoe/hf-bf16/"+name)
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := open(t, layout.OS(), path)
		var w safetensors.Writer
		for key, value := range f.Metadata() {
			w.Meta(key, value)
		}
		for _, ts := range f.Tensors() {
			w.TensorBytes(ts.Name, ts.DType, ts.Shape, want[ts.Offset:ts.Offset+ts.Bytes])
		}
		var got bytes.Buffer
		if _, err := w.WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: got %d bytes that are not the file's %d (%v)", name, got.Len(), len(want), err)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	broken := errors.New("broken")
	write := func(n int) func(io.Writer) error {
		return func(out io.Writer) error { _, err := out.Write(make([]byte, n)); return err }
	}
	for _, c := range []struct {
		name string
		add  func(*safetensors.Writer)
		want string
	}{
		{"one byte fewer", func(w *safetensors.Writer) { w.Tensor("t", "F16", []int64{2}, write(3)) }, `tensor "t": 3 bytes written, want 4`},
		{"one byte more", func(w *safetensors.Writer) { w.Tensor("t", "F16", []int64{2}, write(5)) }, `tensor "t": 1 bytes more than dtype and shape tell`},
		{"bytes that do not fit", func(w *safetensors.Writer) { w.TensorBytes("t", "F16", []int64{2}, make([]byte, 3)) }, `tensor "t": 3 bytes written, want 4`},
		{"a write that fails", func(w *safetensors.Writer) {
			w.Tensor("t", "F16", nil, func(io.Writer) error { return broken })
		}, `tensor "t": broken`},
		{"unknown dtype", func(w *safetensors.Writer) { w.Tensor("t", "Q9", nil, write(0)) }, `dtype "Q9" is not known`},
		{"no dtype", func(w *safetensors.Writer) { w.TensorBytes("t", "", nil, nil) }, `dtype "" is not known`},
		{"half a byte", func(w *safetensors.Writer) { w.Tensor("t", "F4", []int64{3}, write(2)) }, "no whole number of bytes"},
		{"negative", func(w *safetensors.Writer) { w.Tensor("t", "U8", []int64{-2, -2}, write(4)) }, "no whole number of bytes"},
		{"overflow", func(w *safetensors.Writer) { w.Tensor("t", "U8", []int64{1 << 40, 1 << 40}, write(4)) }, "no whole number of bytes"},
		{"sum overflows", func(w *safetensors.Writer) {
			for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
				w.Tensor(name, "U8", []int64{1<<60 + 1<<59}, write(0))
			}
		}, `tensor "f" ends beyond`},
		{"33 dimensions", func(w *safetensors.Writer) { w.Tensor("t", "U8", make([]int64, 33), write(0)) }, "33 dimensions"},
		{"twice", func(w *safetensors.Writer) {
			w.TensorBytes("t", "U8", nil, []byte{1})
			w.TensorBytes("t", "U8", nil, []byte{1})
		}, `"t" is added twice`},
		{"no name", func(w *safetensors.Writer) { w.TensorBytes("", "U8", nil, []byte{1}) }, "no name of a tensor"},
		{"metadata's name", func(w *safetensors.Writer) { w.TensorBytes("__metadata__", "U8", nil, []byte{1}) }, "no name of a tensor"},
		{"no text", func(w *safetensors.Writer) { w.TensorBytes("\xff", "U8", nil, []byte{1}) }, "no name of a tensor"},
		{"metadata no text", func(w *safetensors.Writer) { w.Meta("k", "\xff") }, `metadata "k"`},
	} {
		var w safetensors.Writer
		c.add(&w)
		if _, err := w.WriteTo(io.Discard); err == nil || !strings.HasPrefix(err.Error(), "safetensors: write: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
		err := w.WriteShards("m", w.CutShards(1), func(string) (io.WriteCloser, error) { return discard{}, nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: shards: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	var w safetensors.Writer
	w.TensorBytes("t", "U8", nil, []byte{1})
	for failAt, want := range []string{"header: broken", `tensor "t": broken`} {
		if _, err := w.WriteTo(&failing{after: failAt, err: broken}); !errors.Is(err, broken) || !strings.Contains(err.Error(), want) {
			t.Errorf("device fails at write %d: got %v, want %q", failAt, err, want)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// failing takes some writes, and then none.
type failing struct {
	after int
	err   error
}

func (f *failing) Write(p []byte) (int, error) {
	if f.after--; f.after < 0 {
		return 0, f.err
	}
	return len(p), nil
}

// created collects what WriteShards creates in a file system in memory.
type created struct {
	bytes.Buffer
	fsys *memfs.FS
	path string
}

func (c *created) Close() error { return c.fsys.WriteFile(c.path, c.Bytes()) }

func writeShards(t testing.TB, fsys *memfs.FS, dir string, w *safetensors.Writer, counts []int) {
	t.Helper()
	err := w.WriteShards("model", counts, func(name string) (io.WriteCloser, error) {
		return &created{fsys: fsys, path: filepath.Join(dir, name)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWriteShards(t *testing.T) {
	var w safetensors.Writer
	w.Meta("format", "pt")
	for i, name := range []string{"a", "b", "c", "d"} {
		w.TensorBytes(name, "U8", []int64{int64(i + 1)}, bytes.Repeat([]byte{byte(i)}, i+1))
	}
	fsys := memfs.New(memfs.Options{})
	writeShards(t, fsys, "/m", &w, []int{2, 0, 2})
	want := []string{"/m", "/m/model-00001-of-00003.safetensors", "/m/model-00002-of-00003.safetensors", "/m/model-00003-of-00003.safetensors", "/m/model.safetensors.index.json"}
	if got := fsys.Names(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	index, err := fsys.ReadFile("/m/model.safetensors.index.json")
	wantIndex := `{
  "metadata": {
    "total_size": 10
  },
  "weight_map": {
    "a": "model-00001-of-00003.safetensors",
    "b": "model-00001-of-00003.safetensors",
    "c": "model-00003-of-00003.safetensors",
    "d": "model-00003-of-00003.safetensors"
  }
}
`
	if d := cmp.Diff(wantIndex, string(index)); err != nil || d != "" {
		t.Errorf("index differs, %v (-want +got):\n%s", err, d)
	}
	f := open(t, fsys, "/m/model-00003-of-00003.safetensors")
	dst := make([]byte, 4)
	if d, _ := f.Tensor("d"); f.Metadata()["format"] != "pt" || f.ReadTensor(d, dst) != nil || !bytes.Equal(dst, []byte{3, 3, 3, 3}) {
		t.Errorf("got metadata %v and %v for d", f.Metadata(), dst)
	}
	for _, counts := range [][]int{nil, {3}, {5}, {-1, 5}, {2, 3}} {
		err := w.WriteShards("m", counts, func(string) (io.WriteCloser, error) { t.Error("created a file"); return discard{}, nil })
		if err == nil {
			t.Errorf("shards of %v of 4 tensors: want an error", counts)
		}
	}
	broken := errors.New("broken")
	err = w.WriteShards("m", []int{4}, func(string) (io.WriteCloser, error) { return nil, broken })
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "create m-00001-of-00001.safetensors") {
		t.Errorf("got %v, want the file that could not be created", err)
	}
}

func TestCuts(t *testing.T) {
	var w safetensors.Writer
	for i, n := range []int64{10, 20, 30, 5, 5, 30} {
		w.TensorBytes(string(rune('a'+i)), "U8", []int64{n}, make([]byte, n))
	}
	for most, want := range map[int64][]int{100: {6}, 30: {2, 1, 2, 1}, 1: {1, 1, 1, 1, 1, 1}, 40: {2, 3, 1}} {
		if got := w.CutBytes(most); !slices.Equal(got, want) {
			t.Errorf("CutBytes(%d): got %v, want %v", most, got, want)
		}
	}
	for shards, want := range map[int][]int{1: {6}, 2: {3, 3}, 3: {3, 2, 1}, 6: {1, 1, 1, 1, 1, 1}, 9: {1, 1, 1, 1, 1, 1}, 0: {6}} {
		if got := w.CutShards(shards); !slices.Equal(got, want) {
			t.Errorf("CutShards(%d): got %v, want %v", shards, got, want)
		}
	}
	var none safetensors.Writer
	if a, b := none.CutBytes(5), none.CutShards(3); !slices.Equal(a, []int{0}) || !slices.Equal(b, []int{0}) {
		t.Errorf("no tensors: got %v and %v, want one empty shard", a, b)
	}
}
