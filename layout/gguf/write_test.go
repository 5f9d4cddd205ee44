package gguf_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

func le32(n byte) string { return string([]byte{n, 0, 0, 0}) }
func le64(n byte) string { return string([]byte{n, 0, 0, 0, 0, 0, 0, 0}) }
func be32(n byte) string { return string([]byte{0, 0, 0, n}) }
func be64(n byte) string { return string([]byte{0, 0, 0, 0, 0, 0, 0, n}) }

// The exact bytes of a small file, by the format's specification.
func TestWriterBytes(t *testing.T) {
	for _, c := range []struct {
		name     string
		w        gguf.Writer
		n32, n64 func(byte) string
		one, two string // as uint16

	}{
		{"little-endian", gguf.Writer{Align: 16}, le32, le64, "\x01\x00", "\x02\x00"},
		{"big-endian", gguf.Writer{Align: 16, BigEndian: true}, be32, be64, "\x00\x01", "\x00\x02"},
	} {
		w, n32, n64 := &c.w, c.n32, c.n64
		w.Set("s", "hi")
		w.Set("a", []uint16{1, 2})
		w.TensorBytes("t", gguf.I8, []int64{3, 1}, []byte{7, 8, 9})
		w.TensorBytes("u", gguf.I8, []int64{1}, []byte{5})
		got, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		for _, s := range []string{
			"GGUF", n32(3), n64(2), n64(3),
			n64(1), "s", n32(8), n64(2), "hi",
			n64(1), "a", n32(9), n32(2), n64(2), c.one, c.two,
			n64(17), "general.alignment", n32(4), n32(16),
			n64(1), "t", n32(2), n64(3), n64(1), n32(24), n64(0),
			n64(1), "u", n32(1), n64(1), n32(24), n64(16),
		} {
			want.WriteString(s)
		}
		for want.Len()%16 != 0 {
			want.WriteByte(0)
		}
		want.WriteString("\x07\x08\x09" + strings.Repeat("\x00", 13))
		want.WriteString("\x05" + strings.Repeat("\x00", 15))
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s: got %q, want %q", c.name, got, want.Bytes())
		}
		again, err := w.Bytes()
		if err != nil || !bytes.Equal(got, again) {
			t.Errorf("%s: written twice: got other bytes, %v", c.name, err)
		}
	}
}

func TestWriterStreamsTensors(t *testing.T) {
	data := pattern(1, 3<<20)
	a, b := &gguf.Writer{}, &gguf.Writer{}
	dims := []int64{3 << 20}
	a.TensorBytes("t", gguf.I8, dims, data)
	b.Tensor("t", gguf.I8, dims, func(out io.Writer) error {
		for chunk := range slices.Chunk(data, 1000) {
			if _, err := out.Write(chunk); err != nil {
				return err
			}
		}
		return nil
	})
	x, err1 := a.Bytes()
	y, err2 := b.Bytes()
	if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
		t.Errorf("got different files (%v, %v), want equal ones", err1, err2)
	}
}

// What was read is written again, in either byte order, with the same values.
func TestWriterTakesValuesThatWereRead(t *testing.T) {
	w := &gguf.Writer{}
	for _, s := range valueSet {
		w.Set(s.key, s.value)
	}
	first, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range [][]bool{{false}, {true}, {true, true}, {true, false}} {
		from := open(t, &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": first}}, "m.gguf")
		var last []byte
		for _, big := range order {
			again := &gguf.Writer{BigEndian: big}
			for _, key := range from.Keys() {
				v, _ := from.Meta(key)
				again.Set(key, v)
			}
			if last, err = again.Bytes(); err != nil {
				t.Fatal(err)
			}
			from = open(t, &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": last}}, "m.gguf")
			checkValues(t, from)
		}
		if end := order[len(order)-1]; !end && !bytes.Equal(first, last) {
			t.Errorf("%v: got other bytes than at first", order)
		}
	}
}

func TestWriterErrors(t *testing.T) {
	broken := errors.New("broken")
	stream := func(write func(io.Writer) error) func(*gguf.Writer) {
		return func(w *gguf.Writer) { w.Tensor("t", gguf.I8, []int64{4}, write) }
	}
	long := strings.Repeat("x", 1<<16)
	for _, c := range []struct {
		name  string
		build func(*gguf.Writer)
		want  string
	}{
		{"unknown type of value", func(w *gguf.Writer) { w.Set("k", struct{}{}) }, `key "k": a value of type struct {} has no kind`},
		{"key twice", func(w *gguf.Writer) { w.Set("k", "a"); w.Set("k", "b") }, `key "k" is set twice`},
		{"empty key", func(w *gguf.Writer) { w.Set("", "a") }, "a key of 0 bytes"},
		{"long key", func(w *gguf.Writer) { w.Set(long, "a") }, "a key of 65536 bytes, want 1 to 65535"},
		{"long string", func(w *gguf.Writer) { w.Set("k", strings.Repeat(long, 257)) }, "a string of 16842752 bytes"},
		{"long string in a list", func(w *gguf.Writer) { w.Set("k", []string{strings.Repeat(long, 257)}) }, "a string of 16842752 bytes"},
		{"alignment as a key", func(w *gguf.Writer) { w.Set("general.alignment", uint32(64)) }, "is written from Align"},
		{"alignment", func(w *gguf.Writer) { w.Align = 3 }, "alignment 3, want a power of two"},
		{"large alignment", func(w *gguf.Writer) { w.Align = 1 << 30 }, "up to 16777216"},
		{"version", func(w *gguf.Writer) { w.Version = 1 }, "version 1"},
		{"big-endian version 2", func(w *gguf.Writer) { w.Version, w.BigEndian = 2, true }, "version 2 (big-endian: true)"},
		{"tensor twice", func(w *gguf.Writer) { add(w, "t", gguf.I8, 1); add(w, "t", gguf.I8, 1) }, `tensor "t" is there twice`},
		{"tensor without name", func(w *gguf.Writer) { add(w, "", gguf.I8, 1) }, "name of 0 bytes, want 1 to 1024"},
		{"five dimensions", func(w *gguf.Writer) { add(w, "t", gguf.I8, 1, 1, 1, 1, 1) }, "5 dimensions"},
		{"unknown type of tensor", func(w *gguf.Writer) { w.TensorBytes("t", 99, nil, nil) }, `tensor "t": unknown tensor type: number 99`},
		{"withdrawn type of tensor", func(w *gguf.Writer) { w.TensorBytes("t", 31, nil, nil) }, "number 31"},
		{"other bytes", func(w *gguf.Writer) { w.TensorBytes("t", gguf.F32, []int64{2}, make([]byte, 4)) }, "4 bytes given, F32 [2] takes 8"},
		{"too large together", func(w *gguf.Writer) {
			w.Tensor("t", gguf.I8, []int64{1 << 62}, nil)
			w.Tensor("u", gguf.I8, []int64{1 << 61}, nil)
		}, `tensor "t" brings the file beyond`},
		{"short stream", stream(func(io.Writer) error { return nil }), `tensor "t": 0 bytes written, want 4`},
		{"long stream", stream(func(out io.Writer) error { _, err := out.Write(make([]byte, 5)); return err }), "more bytes than its type and dimensions take: 4"},
		{"long stream, silent", stream(func(out io.Writer) error { out.Write(make([]byte, 4)); out.Write([]byte{1}); return nil }), "more bytes than"},
		{"failing stream", stream(func(io.Writer) error { return broken }), `tensor "t": broken`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &gguf.Writer{}
			c.build(w)
			if _, err := w.WriteTo(io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// fullDisk takes so many bytes.
type fullDisk struct{ left int }

func (f *fullDisk) Write(p []byte) (int, error) {
	n := min(len(p), f.left)
	if f.left -= n; n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// An error of the file surfaces wherever it strikes, and the count is of what arrived.
func TestWriterOnFullDisk(t *testing.T) {
	w := &gguf.Writer{Align: 4096}
	add(w, "a", gguf.I8, 1<<20)
	add(w, "b", gguf.I8, 10)
	whole, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, room := range []int{0, 3, 100, 4096, 1 << 19, len(whole) - 4096, len(whole) - 1} {
		n, err := w.WriteTo(&fullDisk{left: room})
		if !errors.Is(err, io.ErrShortWrite) || n != int64(room) {
			t.Errorf("room for %d bytes: got %d, %v, want %d, %v", room, n, err, room, io.ErrShortWrite)
		}
	}
	if n, err := w.WriteTo(&fullDisk{left: len(whole)}); err != nil || n != int64(len(whole)) {
		t.Errorf("room for all: got %d, %v, want %d", n, err, len(whole))
	}
}

func TestWriterShards(t *testing.T) {
	w := &gguf.Writer{Align: 64}
	w.Set("general.architecture", "x")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		add(w, name, gguf.I8, 100)
	}
	add(w, "large", gguf.I8, 500)
	for _, c := range []struct {
		count int
		want  []int
	}{{1, []int{6}}, {2, []int{5, 1}}, {3, []int{4, 1, 1}}, {6, []int{1, 1, 1, 1, 1, 1}}, {8, []int{1, 1, 1, 1, 1, 1, 0, 0}}, {0, nil}} {
		if got := w.Shards(c.count); !slices.Equal(got, c.want) {
			t.Errorf("%d shards: got %v, want %v", c.count, got, c.want)
		}
		if c.count < 2 {
			continue
		}
		fsys := &memfs.ReadOnly{Files: split(t, w, "m", w.Shards(c.count)...)}
		f := open(t, fsys, gguf.ShardName("m", c.count-1, c.count))
		if len(f.Shards()) != c.count || len(f.Tensors()) != 6 || f.Architecture() != "x" {
			t.Errorf("%d shards: got %d, %d tensors, architecture %q", c.count, len(f.Shards()), len(f.Tensors()), f.Architecture())
		}
		for _, ts := range f.Tensors() {
			got := make([]byte, ts.Bytes)
			if err := f.ReadTensor(ts, got); err != nil || !bytes.Equal(got, pattern(byte(len(ts.Name)), ts.Bytes)) || ts.Offset%64 != 0 {
				t.Errorf("%d shards: tensor %q at %d of shard %d is not what was written (%v)", c.count, ts.Name, ts.Offset, ts.Shard, err)
			}
		}
	}
}

// closing counts files that are open and fails where it is told to.
type closing struct {
	io.Writer
	open *int
	err  error
}

func (c closing) Close() error { *c.open--; return c.err }

func TestWriterShardErrors(t *testing.T) {
	broken := errors.New("broken")
	isOpen := 0
	files := func(out io.Writer, closed error) func(string) (io.WriteCloser, error) {
		return func(string) (io.WriteCloser, error) { isOpen++; return closing{out, &isOpen, closed}, nil }
	}
	for _, c := range []struct {
		name   string
		set    string
		cut    []int
		create func(string) (io.WriteCloser, error)
		want   string
	}{
		{"no shards", "", nil, files(io.Discard, nil), "0 shards, want 1 to 65535"},
		{"too many", "", make([]int, 1<<16), files(io.Discard, nil), "65536 shards"},
		{"more than there are", "", []int{1, 2}, files(io.Discard, nil), "shard 2 wants 2 tensors, 1 are left"},
		{"negative", "", []int{-1, 2}, files(io.Discard, nil), "shard 1 wants -1 tensors"},
		{"some left", "", []int{0, 1}, files(io.Discard, nil), "1 tensors are in no shard"},
		{"split keys", "split.no", []int{-1}, files(io.Discard, nil), `key "split.no" is the shards' own`},
		{"create fails", "", []int{-1}, func(string) (io.WriteCloser, error) { return nil, broken }, "shard m-00001-of-00001.gguf: broken"},
		{"close fails", "", []int{1, 1}, files(io.Discard, broken), "shard m-00001-of-00002.gguf: broken"},
		{"disk is full", "", []int{1, 1}, files(&fullDisk{left: 300}, nil), "shard m-00002-of-00002.gguf: gguf: write"},
	} {
		w := &gguf.Writer{}
		if c.set != "" {
			w.Set(c.set, uint16(1))
		}
		add(w, "a", gguf.I8, 64)
		add(w, "b", gguf.I8, 64)
		if _, err := w.WriteShards("m", c.cut, c.create); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
		if isOpen != 0 {
			t.Errorf("%s: %d files are still open, want 0", c.name, isOpen)
		}
	}
}
