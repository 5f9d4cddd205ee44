package safetensors_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/layout/safetensors"
)

const header = `{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},` +
	`"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"none":{"dtype":"F32","shape":[0,9],"data_offsets":[20,20]},` +
	`"new":{"dtype":"Z9","shape":[5],"data_offsets":[20,22],"scale":[1,{"x":2}]}}   `

func TestOpen(t *testing.T) {
	fsys := oneFile(header, 22)
	f := open(t, fsys, "m.safetensors")
	start := int64(8 + len(header))
	want := []safetensors.Tensor{
		{Name: "b", DType: "BF16", Shape: []int64{2, 3}, Offset: start + 8, Bytes: 12},
		{Name: "a", DType: "I64", Shape: []int64{}, Offset: start, Bytes: 8},
		{Name: "none", DType: "F32", Shape: []int64{0, 9}, Offset: start + 20, Bytes: 0},
		{Name: "new", DType: "Z9", Shape: []int64{5}, Offset: start + 20, Bytes: 2},
	}
	if d := cmp.Diff(want, f.Tensors()); d != "" {
		t.Errorf("tensors differ (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"format": "pt"}, f.Metadata()); d != "" {
		t.Errorf("metadata differs (-want +got):\n%s", d)
	}
	if got := f.Source(); got.Path != "m.safetensors" || got.Size != start+22 || len(got.Header) != 64 {
		t.Errorf("got source %+v, want m.safetensors, %d bytes and a digest", got, start+22)
	}
	if got := fsys.Bytes.Load(); got != start {
		t.Errorf("opening read %d bytes, want only the header's %d", got, start)
	}
	for _, ts := range want {
		dst := make([]byte, ts.Bytes)
		if err := f.ReadTensor(ts, dst); err != nil {
			t.Fatal(err)
		}
		if whole := fsys.Files["m.safetensors"][ts.Offset : ts.Offset+ts.Bytes]; !bytes.Equal(dst, whole) {
			t.Errorf("tensor %q reads as %v, want %v", ts.Name, dst, whole)
		}
	}
	if n := fsys.Opens.Load(); n != 0 {
		t.Errorf("%d files are still open, want 0", n)
	}
}

func TestEmptyHeader(t *testing.T) {
	if f := open(t, oneFile("{}", 0), "m.safetensors"); len(f.Tensors()) != 0 || len(f.Metadata()) != 0 {
		t.Errorf("got %v and %v, want nothing", f.Tensors(), f.Metadata())
	}
}

func TestReadTensorErrors(t *testing.T) {
	fsys := oneFile(header, 22)
	f := open(t, fsys, "m.safetensors")
	a, _ := f.Tensor("a")
	if err := f.ReadTensor(safetensors.Tensor{Name: "zz"}, nil); !errors.Is(err, safetensors.ErrNoTensor) {
		t.Errorf("got %v, want %v", err, safetensors.ErrNoTensor)
	}
	if err := f.ReadTensor(a, make([]byte, 7)); err == nil || !strings.Contains(err.Error(), "buffer of 7 bytes, want 8") {
		t.Errorf("got %v, want the buffer's size", err)
	}
	fsys.Files["m.safetensors"] = append(fsys.Files["m.safetensors"], 0)
	if err := f.ReadTensor(a, make([]byte, 8)); !errors.Is(err, layout.ErrSourceChanged) {
		t.Errorf("got %v, want %v", err, layout.ErrSourceChanged)
	}
	delete(fsys.Files, "m.safetensors")
	if err := f.ReadTensor(a, make([]byte, 8)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	if _, err := safetensors.Open(fsys, "m.safetensors"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want %v", err, os.ErrNotExist)
	}
	if n := fsys.Opens.Load(); n != 0 {
		t.Errorf("%d files are still open, want 0", n)
	}
}

// The shards that Hugging Face's own writer made of the test model.
func TestRealFiles(t *testing.T) {
	tensors, total := 0, int64(0)
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		f := open(t, layout.OS(), testfiles.Shared(t, "tinymoe/hf-bf16/"+name))
		for _, ts := range f.Tensors() {
			tensors++
			total += ts.Bytes
			if ts.DType != "BF16" {
				t.Errorf("%s is %s, want BF16", ts.Name, ts.DType)
			}
		}
	}
	// model.safetensors.index.json: metadata.total_size, and its weight_map.
	index, err := os.ReadFile(testfiles.Shared(t, "tinymoe/hf-bf16/model.safetensors.index.json"))
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Count(string(index), ".safetensors\""); tensors != want {
		t.Errorf("got %d tensors, want the index's %d", tensors, want)
	}
	if want := total; !strings.Contains(strings.Join(strings.Fields(string(index)), ""), `"total_size":`+strconv.FormatInt(want, 10)) {
		t.Errorf("the tensors have %d bytes, which is not the index's total_size", want)
	}
}
