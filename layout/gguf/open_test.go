package gguf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/gguf"
)

// pattern is n bytes that differ from tensor to tensor.
func pattern(seed byte, n int64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7)
	}
	return b
}

func add(w *gguf.Writer, name string, typ gguf.Type, dims ...int64) []byte {
	n, err := typ.Bytes(dims)
	if err != nil {
		panic(err) // a test's own mistake
	}
	data := pattern(byte(len(name)), n)
	w.TensorBytes(name, typ, dims, data)
	return data
}

func TestOpenSynthetic(t *testing.T) {
	for _, align := range []uint32{0, 1, 32, 64, 4096} {
		for _, version := range []uint32{2, 3} {
			w := &gguf.Writer{Align: align, Version: version}
			w.Set("general.architecture", "testarch")
			w.Set("testarch.number", uint32(5))
			a := add(w, "a.weight", gguf.Q8_0, 32, 3)
			b := add(w, "b.weight", gguf.F16, 7, 1, 1, 2)
			c := add(w, "c", gguf.I8)
			fsys := oneFile(t, w)
			f := open(t, fsys, "m.gguf")
			if f.Version() != int(version) || f.Architecture() != "testarch" {
				t.Errorf("align %d: got version %d architecture %q, want %d testarch", align, f.Version(), f.Architecture(), version)
			}
			if v, _ := f.ArchMeta("number"); v.String() != "5" {
				t.Errorf("ArchMeta: got %v, want 5", v)
			}
			step := int64(align)
			if align == 0 {
				step = 32
			}
			whole := fsys.Files["m.gguf"]
			for i, want := range [][]byte{a, b, c} {
				ts := f.Tensors()[i]
				if ts.Bytes != int64(len(want)) || !bytes.Equal(whole[ts.Offset:ts.Offset+ts.Bytes], want) {
					t.Errorf("align %d: tensor %q at %d is not what was written", align, ts.Name, ts.Offset)
				}
				if ts.Offset%step != 0 {
					t.Errorf("align %d: tensor %q is at %d", align, ts.Name, ts.Offset)
				}
				got := make([]byte, ts.Bytes)
				if err := f.ReadTensor(ts, got); err != nil || !bytes.Equal(got, want) {
					t.Errorf("ReadTensor(%q): got other bytes, %v", ts.Name, err)
				}
			}
			sum := sha256.Sum256(whole[:f.Tensors()[0].Offset])
			want := layout.CheckpointFile{Path: "m.gguf", Size: int64(len(whole)), Header: hex.EncodeToString(sum[:])}
			if got := f.Shards(); !slices.Equal(got, []layout.CheckpointFile{want}) {
				t.Errorf("align %d: got shards %v, want %v", align, got, want)
			}
			if n := fsys.Opens.Load(); n != 0 {
				t.Errorf("%d files are still open, want 0", n)
			}
		}
	}
}

// Only the header is read, in chunks, however large the tensors are.
func TestOpenReadsHeaderOnly(t *testing.T) {
	w := &gguf.Writer{}
	tokens := make([]string, 50_000)
	for i := range tokens {
		tokens[i] = fmt.Sprintf("token %d", i)
	}
	w.Set("tokens", tokens)
	add(w, "big", gguf.I8, 8<<20)
	fsys := oneFile(t, w)
	f := open(t, fsys, "m.gguf")
	v, _ := f.Meta("tokens")
	if got, ok := v.Strings(); !ok || !slices.Equal(got, tokens) {
		t.Error("tokens: got other strings than written")
	}
	big, _ := f.Tensor("big")
	if got, limit := fsys.Bytes.Load(), 2*big.Offset+64<<10; got > limit {
		t.Errorf("got %d bytes read of a header of %d, want at most %d", got, big.Offset, limit)
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := gguf.Open(&memfs.ReadOnly{}, "none.gguf"); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.gguf") {
		t.Errorf("a missing file: got %v, want %v and its name", err, os.ErrNotExist)
	}
}

// shortFS claims a size that its files don't have.
type shortFS struct{ *memfs.ReadOnly }

type shortFile struct{ layout.File }

func (f shortFile) Size() int64 { return f.File.Size() + 10 }

func (f shortFS) Open(name string, m layout.Mode) (layout.File, error) {
	file, err := f.ReadOnly.Open(name, m)
	return shortFile{file}, err
}

func TestReadFailures(t *testing.T) {
	w := &gguf.Writer{}
	add(w, "a", gguf.I8, 64)
	fsys := oneFile(t, w)
	if _, err := gguf.Open(shortFS{fsys}, "m.gguf"); !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "read header at byte 0") {
		t.Errorf("short read of the header: got %v, want io.EOF and the place", err)
	}
	f := open(t, fsys, "m.gguf")
	a, _ := f.Tensor("a")
	if err := f.ReadTensor(a, make([]byte, 63)); err == nil || !strings.Contains(err.Error(), "buffer of 63 bytes, want 64") {
		t.Errorf("wrong buffer: got %v, want an error with both sizes", err)
	}
	if err := f.ReadTensor(gguf.Tensor{Name: "b"}, nil); !errors.Is(err, gguf.ErrNoTensor) {
		t.Errorf("unknown tensor: got %v, want %v", err, gguf.ErrNoTensor)
	}
	fsys.Files["m.gguf"] = fsys.Files["m.gguf"][:100]
	if err := f.ReadTensor(a, make([]byte, 64)); !errors.Is(err, layout.ErrSourceChanged) {
		t.Errorf("a file cut after Open: got %v, want %v", err, layout.ErrSourceChanged)
	}
	delete(fsys.Files, "m.gguf")
	if err := f.ReadTensor(a, make([]byte, 64)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file removed after Open: got %v, want %v", err, os.ErrNotExist)
	}
	if n := fsys.Opens.Load(); n != 0 {
		t.Errorf("%d files are still open, want 0", n)
	}
}

// The real files, by their own numbers.
func TestOpenRealFiles(t *testing.T) {
	for _, c := range []struct {
		name                  string
		shards, tensors, keys int
		expType               gguf.Type
	}{
		{"tinymoe-q8_0.gguf", 1, 98, 29, gguf.Q8_0},
		{"tinymoe-f16.gguf", 1, 98, 29, gguf.F16},
		{"tinymoe-mxfp4_moe.gguf", 1, 98, 29, gguf.MXFP4},
		{"tinymoe-1layer-q4_0.gguf", 1, 14, 29, gguf.Q4_0},
		{"tinymoe-q4_k_m-00001-of-00003.gguf", 3, 98, 36, gguf.Q4_K},
		{"tinymoe-q4_k_m-00002-of-00003.gguf", 3, 98, 36, gguf.Q4_K},
		{"tinymoe-q4_k_m-00003-of-00003.gguf", 3, 98, 36, gguf.Q4_K},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, layout.OS(), dataFile(t, c.name))
			if len(f.Shards()) != c.shards || len(f.Tensors()) != c.tensors || len(f.Keys()) != c.keys {
				t.Errorf("got %d shards, %d tensors, %d keys, want %d, %d, %d", len(f.Shards()), len(f.Tensors()), len(f.Keys()), c.shards, c.tensors, c.keys)
			}
			gate, _ := f.Tensor("blk.0.ffn_gate_exps.weight")
			if gate.Type != c.expType || !slices.Equal(gate.Dims, []int64{256, 64, 32}) {
				t.Errorf("got gate %v %v, want %v [256 64 32]", gate.Type, gate.Dims, c.expType)
			}
			last := make([]int64, c.shards) // ends of the tensors fill the files but for padding
			for _, ts := range f.Tensors() {
				last[ts.Shard] = max(last[ts.Shard], ts.Offset+ts.Bytes)
			}
			for i, s := range f.Shards() {
				if s.Size-last[i] >= 32 || s.Size < last[i] || len(s.Header) != 64 {
					t.Errorf("shard %d: got tensors up to %d, want close to %d", i, last[i], s.Size)
				}
			}
			if c.shards > 1 && filepath.Base(f.Shards()[0].Path) != "tinymoe-q4_k_m-00001-of-00003.gguf" {
				t.Errorf("got first shard %s, want number 1", f.Shards()[0].Path)
			}
		})
	}
}

func BenchmarkOpen(b *testing.B) {
	path := dataFile(b, "tinymoe-q8_0.gguf")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gguf.Open(layout.OS(), path); err != nil {
			b.Fatal(err)
		}
	}
}
