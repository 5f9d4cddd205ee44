package layout_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/safetensors"
)

const hashTokens = 9

// withHash gives a checkpoint with routers hash tables in its first two layers, as
// I32 and I64, of which the numbers are returned.
func withHash(t testing.TB, fsys *memfs.FS, cp *layout.Checkpoint) (want [][]int32) {
	t.Helper()
	var data []byte
	k := cp.Shape.TopK
	for l, typ := range []string{"I32", "I64"} {
		start := int64(len(data))
		var numbers []int32
		for i := range hashTokens * k {
			e := int32((i*5 + l) % cp.Shape.Experts)
			numbers = append(numbers, e)
			if typ == "I32" {
				data = binary.LittleEndian.AppendUint32(data, uint32(e))
			} else {
				data = binary.LittleEndian.AppendUint64(data, uint64(e))
			}
		}
		want = append(want, numbers)
		cp.Routers.Layers[l].Selection = layout.RouterTensor{}
		cp.Routers.Layers[l].Hash = layout.RouterTensor{Source: "gate.tid2eid", Type: typ, Span: layout.Span{File: len(cp.Files), Offset: start, Bytes: int64(len(data)) - start}}
	}
	cp.Routers.Tokens = hashTokens
	if err := fsys.WriteFile("/models/hash.gguf", data); err != nil {
		t.Fatal(err)
	}
	cp.Files = append(cp.Files, layout.CheckpointFile{Path: "/models/hash.gguf", Size: int64(len(data)), Header: "22"})
	return want
}

func hashSource(t testing.TB) (*memfs.FS, layout.Checkpoint, [][]int32) {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	cp := source(t, fsys, smallModel)
	withRouters(t, fsys, &cp)
	return fsys, cp, withHash(t, fsys, &cp)
}

// Store and checkpoint give the same tables, and the matrices of those layers too.
func TestHashTables(t *testing.T) {
	fsys, cp, want := hashSource(t)
	report := build(t, fsys, "/m", cp, layout.PlanOptions{})
	store := open(t, fsys, "/m", layout.Buffered)
	inPlace, err := layout.OpenInPlace(fsys, cp, layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Close()
	for _, src := range []layout.RouterSource{store, inPlace} {
		r, err := src.Routers()
		if err != nil {
			t.Fatal(err)
		}
		if bytes := r.Bytes(); bytes != int64(4*(3*6*64+6+6+2*hashTokens*2)) || bytes > report.RouterBytes || r.Tokens != hashTokens {
			t.Errorf("%T: got %d bytes and %d tokens, the file has %d", src, bytes, r.Tokens, report.RouterBytes)
		}
		for l := range cp.Shape.Layers {
			h, err := r.Table(l)
			if err != nil {
				t.Fatal(err)
			}
			if l == 2 {
				if h != nil {
					t.Errorf("%T: layer 2 chooses by scores, but got a table", src)
				}
				continue
			}
			if m, err := r.Load(l); err != nil || len(m.Weight) != 6*routerWidth || m.Selection != nil {
				t.Errorf("%T layer %d: got a matrix of %d numbers and %v", src, l, len(m.Weight), err)
			}
			var got []int32
			for token := range int32(h.Tokens()) {
				got = append(got, h.Experts(token)...)
			}
			if !slices.Equal(got, want[l]) || h.Tokens() != hashTokens {
				t.Errorf("%T layer %d: got %v, want %v", src, l, got, want[l])
			}
			if a, b := h.Experts(-1), h.Experts(hashTokens); a != nil || b != nil {
				t.Errorf("%T: tokens outside the table give %v and %v, want nothing", src, a, b)
			}
		}
		if _, err := r.Table(3); err == nil || !strings.Contains(err.Error(), "layer 3 is outside") {
			t.Errorf("%T: layer 3 of 3: got %v", src, err)
		}
	}
	file, err := safetensors.Open(fsys, routerPath)
	if err != nil {
		t.Fatal(err)
	}
	if ts, _ := file.Tensor("layers.1.hash"); ts.DType != "I32" || !slices.Equal(ts.Shape, []int64{hashTokens, 2}) || file.Metadata()["version"] != "2" {
		t.Errorf("got %+v in version %s", ts, file.Metadata()["version"])
	}
	if r, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m", Source: &cp}); err != nil || !r.OK() {
		t.Errorf("Verify: got %+v and %v", r, err)
	}
	edit(t, fsys, "/models/hash.gguf", flip(hashTokens*2*4+8))
	if r, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: fsys, Dir: "/m", Source: &cp}); err != nil || r.Found != 1 || !strings.Contains(r.Damages[0].Reason, "differs from the checkpoint's gate.tid2eid") {
		t.Errorf("Verify beside a changed checkpoint: got %+v and %v", r, err)
	}
}

// A file without tables is what it was before there were any, for older programs.
func TestNoHashTablesIsVersion1(t *testing.T) {
	fsys, _, _ := routerStore(t)
	data, err := fsys.ReadFile(routerPath)
	if err != nil || !bytes.Contains(data, []byte(`"version":"1","store"`)) || bytes.Contains(data, []byte("tokens")) {
		t.Errorf("got %v, and a header with another version or with tokens", err)
	}
}

func TestHashTablesRefuseDamage(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		want   string
	}{
		{"no tokens", sealed(replace(`"tokens":"9"`, `"were":"9"`)), "tokens is"},
		{"other tokens", sealed(replace(`"tokens":"9"`, `"tokens":"8"`)), "want I32 [8 2]"},
		{"negative tokens", sealed(replace(`"tokens":"9"`, `"tokens":"-9"`)), "hash tables of -9 tokens"},
		{"huge tokens", sealed(replace(`"tokens":"9"`, `"tokens":"4611686018427387904"`)), "hash tables of 4611686018427387904"},
		{"a table in version 1", sealed(replace(`"version":"2"`, `"version":"1"`)), "want I32 [0 2]"},
		{"type", sealed(replace(`"I32"`, `"F32"`)), "layers.0.hash is F32"},
		{"a table gone", sealed(replace(`layers.1.hash`, `layers.1.hush`)), "layers.2.weight is F32 [6 64] at [3240 4776], want F32 [6 64] from byte 3168"},
	} {
		fsys, cp, _ := hashSource(t)
		build(t, fsys, "/m", cp, layout.PlanOptions{})
		edit(t, fsys, routerPath, test.change)
		_, err := open(t, fsys, "/m", layout.Buffered).Routers()
		wrong{nil, routerPath, test.want}.check(t, test.name, err)
	}
	fsys, cp, _ := hashSource(t)
	build(t, fsys, "/m", cp, layout.PlanOptions{})
	r, err := open(t, fsys, "/m", layout.Buffered).Routers()
	if err != nil {
		t.Fatal(err)
	}
	edit(t, fsys, routerPath, func(b []byte) []byte { b[r.Layers[1].Hash.Offset] ^= 1; return b })
	_, err = r.Table(1)
	wrong{nil, routerPath, "layers.1.hash has checksum"}.check(t, "changed number", err)
}

// Numbers that name no expert are told when the table is loaded; those that a
// store cannot hold stop the build.
func TestHashTablesOfNonsense(t *testing.T) {
	put := func(at int, n int64) func([]byte) []byte {
		return func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], uint64(n)); return b }
	}
	const second = hashTokens * 2 * 4 // the I64 table
	for _, test := range []struct {
		name   string
		layer  int
		change func([]byte) []byte
		want   string
		build  bool
	}{
		{"I32 too large", 0, func(b []byte) []byte { b[4] = 6; return b }, "gives token 0 expert 6 of 6", true},
		{"I32 negative", 0, func(b []byte) []byte { copy(b[8:], "\xff\xff\xff\xff"); return b }, "gives token 1 expert -1 of 6", true},
		{"I64 too large", 1, put(second, 6), "gives token 0 expert 6 of 6", true},
		{"I64 that wraps", 1, put(second+8, 1<<32), "expert 4294967296 of 6", false},
		{"I64 least", 1, put(second+8, math.MinInt64), "expert -9223372036854775808 of 6", false},
	} {
		fsys, cp, _ := hashSource(t)
		edit(t, fsys, "/models/hash.gguf", test.change)
		inPlace, err := layout.OpenInPlace(fsys, cp, layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		defer inPlace.Close()
		r, err := inPlace.Routers()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Table(test.layer); !errors.Is(err, layout.ErrCheckpoint) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "gate.tid2eid of /models/hash.gguf") {
			t.Errorf("%s: got %v, want one that says %q", test.name, err, test.want)
		}
		_, err = layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: "/m", Plan: plan(t, cp, layout.PlanOptions{}), Checkpoint: &cp})
		if test.build {
			if err != nil {
				t.Errorf("%s: build: got %v, want a store whose table cannot be loaded", test.name, err)
			}
			continue
		}
		if _, statErr := fsys.Stat("/m"); !errors.Is(err, layout.ErrCheckpoint) || !strings.Contains(err.Error(), "which is no expert") || !errors.Is(statErr, fs.ErrNotExist) {
			t.Errorf("%s: build: got %v and %v, want an error and no store", test.name, err, statErr)
		}
	}
}

func TestValidateRefusesHashTables(t *testing.T) {
	for _, test := range []struct {
		text   string
		change func(*layout.CheckpointRouters)
	}{
		{"table of 0 tokens", func(r *layout.CheckpointRouters) { r.Tokens = 0 }},
		{"hash tables of -1 tokens", func(r *layout.CheckpointRouters) { r.Tokens = -1 }},
		{"hash tables of 1073741824 tokens", func(r *layout.CheckpointRouters) { r.Tokens = 1 << 30 }},
		{"72 bytes, want 80", func(r *layout.CheckpointRouters) { r.Tokens = 10 }},
		{`type "F32"`, func(r *layout.CheckpointRouters) { r.Layers[0].Hash.Type = "F32" }},
		{`type "I32"`, func(r *layout.CheckpointRouters) { r.Layers[0].Weight.Type = "I32" }},
		{"outside", func(r *layout.CheckpointRouters) { r.Layers[1].Hash.Offset = 1 << 40 }},
	} {
		_, cp, _ := hashSource(t)
		if err := cp.Validate(); err != nil {
			t.Fatal(err)
		}
		test.change(cp.Routers)
		if err := cp.Validate(); !errors.Is(err, layout.ErrCheckpoint) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("got %v, want %v that says %q", err, layout.ErrCheckpoint, test.text)
		}
	}
}
