package gguf_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// A big-endian file reads as a little-endian one does, and says what it is.
func TestOpenBigEndian(t *testing.T) {
	files := map[bool]*gguf.File{}
	for _, big := range []bool{false, true} {
		w := &gguf.Writer{BigEndian: big, Align: 64}
		w.Set("general.architecture", "testarch")
		w.Set("testarch.number", uint32(5))
		w.Set("list", []int16{1, -2})
		w.Set("texts", []string{"a", "bb"})
		for _, typ := range []gguf.Type{gguf.F32, gguf.Q8_0, gguf.Q4_K, gguf.I8, gguf.MXFP4, gguf.NVFP4} {
			add(w, typ.String(), typ, 256, 3)
		}
		f := open(t, oneFile(t, w), "m.gguf")
		files[big] = f
		number, _ := f.ArchMeta("number")
		list, _ := f.Meta("list")
		texts, _ := f.Meta("texts")
		ints, _ := list.Ints()
		strings, _ := texts.Strings()
		if n, ok := number.Uint(); f.BigEndian() != big || f.Version() != 3 || n != 5 || !ok ||
			!slices.Equal(ints, []int64{1, -2}) || !slices.Equal(strings, []string{"a", "bb"}) {
			t.Errorf("big-endian %v: got %v, version %d, %v, %v, %q", big, f.BigEndian(), f.Version(), number, ints, strings)
		}
	}
	bytewise := []string{"I8", "MXFP4", "NVFP4"}
	for i, big := range files[true].Tensors() {
		little := files[false].Tensors()[i]
		want := little
		want.BigEndian = !slices.Contains(bytewise, big.Name)
		if fmt.Sprint(big) != fmt.Sprint(want) {
			t.Errorf("got %+v, want %+v", big, want)
		}
		name := big.Type.String()
		if little.TypeName() != name || big.TypeName() != map[bool]string{false: name, true: name + " big-endian"}[want.BigEndian] {
			t.Errorf("got type names %q and %q of %s", little.TypeName(), big.TypeName(), name)
		}
		if _, known := gguf.ParseType(big.TypeName()); known == big.BigEndian {
			t.Errorf("%q is taken for a type that decoders know: %v, want %v", big.TypeName(), known, !big.BigEndian)
		}
		a, b := make([]byte, big.Bytes), make([]byte, little.Bytes)
		if err1, err2 := files[true].ReadTensor(big, a), files[false].ReadTensor(little, b); err1 != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: the bytes are not those that were written (%v, %v)", big.Name, err1, err2)
		}
	}
}

func TestOpenBigEndianShards(t *testing.T) {
	w := &gguf.Writer{BigEndian: true}
	add(w, "a", gguf.F32, 10)
	add(w, "b", gguf.F32, 10)
	f := open(t, &memfs.ReadOnly{Files: split(t, w, "m", 1, 1)}, gguf.ShardName("m", 1, 2))
	if b, _ := f.Tensor("b"); !f.BigEndian() || len(f.Shards()) != 2 || b.Shard != 1 || !b.BigEndian {
		t.Errorf("got big-endian %v, %d shards, b %+v", f.BigEndian(), len(f.Shards()), b)
	}
}

// Files of version 2 in that order do not come from llama.cpp, but mean one thing only.
func TestOpenBigEndianVersion2(t *testing.T) {
	w := &gguf.Writer{Version: 2, BigEndian: true, Unchecked: true}
	add(w, "a", gguf.F32, 10)
	if f := open(t, oneFile(t, w), "m.gguf"); f.Version() != 2 || !f.BigEndian() {
		t.Errorf("got version %d, big-endian %v", f.Version(), f.BigEndian())
	}
}
