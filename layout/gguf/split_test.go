package gguf_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// splitFS holds six tensors in three shards, the first of them with metadata only.
func splitFS(t *testing.T) *memfs.ReadOnly {
	t.Helper()
	w := &gguf.Writer{}
	w.Set("general.architecture", "split")
	for i := range 6 {
		add(w, fmt.Sprintf("t%d", i), gguf.I8, int64(10+i))
	}
	return &memfs.ReadOnly{Files: split(t, w, "dir-00001-of-00002/m", 0, 4, -1)}
}

func shard(no int) string { return "dir-00001-of-00002/" + gguf.ShardName("m", no, 3) }

func TestSplitOpenedByAnyShard(t *testing.T) {
	fsys := splitFS(t)
	for no := range 3 {
		f := open(t, fsys, shard(no))
		var where []int
		for _, ts := range f.Tensors() {
			where = append(where, ts.Shard)
			if got, want := fsys.Files[f.Shards()[ts.Shard].Path][ts.Offset], pattern(2, 1)[0]; got != want {
				t.Errorf("first byte of %s: got %d, want %d", ts.Name, got, want)
			}
		}
		if want := []int{1, 1, 1, 1, 2, 2}; !slices.Equal(where, want) {
			t.Errorf("opened by shard %d: got tensors in shards %v, want %v", no, where, want)
		}
		if f.Architecture() != "split" {
			t.Errorf("opened by shard %d: got architecture %q, want the first shard's", no, f.Architecture())
		}
	}
	if n := fsys.Opens.Load(); n != 0 {
		t.Errorf("%d files are still open, want 0", n)
	}
}

func TestSplitErrors(t *testing.T) {
	// shardOf writes one shard with split metadata of choice.
	shardOf := func(no, count, total int, tensors ...string) []byte {
		w := &gguf.Writer{}
		w.Set("split.no", uint16(no))
		w.Set("split.count", uint16(count))
		w.Set("split.tensors.count", int32(total))
		for _, name := range tensors {
			add(w, name, gguf.I8, 10)
		}
		b, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		name   string
		change func(map[string][]byte)
		open   string
		is     error
		want   []string
	}{
		{"middle missing", func(m map[string][]byte) { delete(m, shard(1)) }, shard(0), gguf.ErrMissingShard,
			[]string{"1 of 3 shards", "m-00002-of-00003.gguf;"}},
		{"two missing", func(m map[string][]byte) { delete(m, shard(0)); delete(m, shard(2)) }, shard(1), gguf.ErrMissingShard,
			[]string{"2 of 3 shards", "m-00001-of-00003.gguf, m-00003-of-00003.gguf"}},
		{"thousands missing", func(m map[string][]byte) { m["x-00001-of-60000.gguf"] = shardOf(0, 60000, 1, "a") }, "x-00001-of-60000.gguf", gguf.ErrMissingShard,
			[]string{"59999 of 60000", "and 59979 more"}},
		{"renamed", func(m map[string][]byte) { m["other.gguf"] = m[shard(0)] }, "other.gguf", gguf.ErrSplit,
			[]string{"shard of 3", `"-00001-of-00003.gguf"`}},
		{"misnumbered", func(m map[string][]byte) { m[shard(0)] = m[shard(1)] }, shard(0), gguf.ErrSplit,
			[]string{"shard 2 of 3", "00001-of-00003"}},
		{"another misnumbered", func(m map[string][]byte) { m[shard(2)] = m[shard(1)] }, shard(0), gguf.ErrSplit,
			[]string{shard(2), "says shard 2 of 3, want 3 of 3"}},
		{"shard of another split", func(m map[string][]byte) { m[shard(2)] = shardOf(2, 4, 6, "t4", "t5") }, shard(0), gguf.ErrSplit,
			[]string{"shard 3 of 4, want 3 of 3"}},
		{"not a shard", func(m map[string][]byte) { m[shard(2)] = shardOf(2, 1, 6, "t4", "t5") }, shard(0), gguf.ErrSplit,
			[]string{"of 1, want 3 of 3"}},
		{"duplicate over shards", func(m map[string][]byte) { m[shard(2)] = shardOf(2, 3, 6, "t4", "t3") }, shard(0), gguf.ErrSplit,
			[]string{shard(2), `tensor "t3" is also in ` + shard(1)}},
		{"tensor lost", func(m map[string][]byte) { m[shard(2)] = shardOf(2, 3, 6, "t4") }, shard(0), gguf.ErrSplit,
			[]string{"split.tensors.count is 6", "5 tensors"}},
		{"second says another total", func(m map[string][]byte) { m[shard(2)] = shardOf(2, 3, 7, "t4", "t5") }, shard(0), gguf.ErrSplit,
			[]string{shard(2), "split.tensors.count is 7", "6 tensors"}},
		{"another byte order", func(m map[string][]byte) {
			w := &gguf.Writer{BigEndian: true}
			w.Set("split.no", uint16(2))
			w.Set("split.count", uint16(3))
			add(w, "t4", gguf.I8, 10)
			add(w, "t5", gguf.I8, 10)
			m[shard(2)], _ = w.Bytes()
		}, shard(0), gguf.ErrSplit, []string{shard(2), "it is big-endian: true, the first shard: false"}},
		{"second empty", func(m map[string][]byte) { m[shard(1)] = nil }, shard(0), gguf.ErrTruncated,
			[]string{shard(1), "it is empty; get the file again"}},
		{"last truncated", func(m map[string][]byte) { m[shard(2)] = m[shard(2)][:len(m[shard(2)])-40] }, shard(0), gguf.ErrTruncated,
			[]string{shard(2), `tensor "t5" ends at byte`, "get the file again"}},
		{"two truncated", func(m map[string][]byte) { m[shard(1)], m[shard(2)] = m[shard(1)][:200], nil }, shard(0), gguf.ErrTruncated,
			[]string{shard(1), "nor can be read: m-00003-of-00003.gguf"}},
		{"second damaged", func(m map[string][]byte) { m[shard(1)] = []byte("<html>") }, shard(0), gguf.ErrNotGGUF,
			[]string{shard(1), `"<htm"`}},
		{"count is a string", func(m map[string][]byte) {
			w := &gguf.Writer{}
			w.Set("split.count", "three")
			m["s.gguf"], _ = w.Bytes()
		}, "s.gguf", gguf.ErrSplit, []string{"split.count is three (string)"}},
		{"number beyond count", func(m map[string][]byte) { m[shard(0)] = shardOf(3, 3, 6) }, shard(0), gguf.ErrSplit,
			[]string{"split.no is 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := splitFS(t)
			fsys.Files = maps.Clone(fsys.Files)
			c.change(fsys.Files)
			_, err := gguf.Open(fsys, c.open)
			if !errors.Is(err, c.is) {
				t.Fatalf("got %v, want %v", err, c.is)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("got %q, want it to contain %q", err, w)
				}
			}
			if n := fsys.Opens.Load(); n != 0 {
				t.Errorf("%d files are still open, want 0", n)
			}
		})
	}
}

// A name that looks like a shard's is no split: only metadata says so.
func TestSplitNameAlone(t *testing.T) {
	w := &gguf.Writer{}
	add(w, "a", gguf.I8, 10)
	fsys := oneFile(t, w)
	fsys.Files["m-00001-of-00009.gguf"] = fsys.Files["m.gguf"]
	if f := open(t, fsys, "m-00001-of-00009.gguf"); len(f.Shards()) != 1 {
		t.Errorf("got %d shards, want 1", len(f.Shards()))
	}
}
