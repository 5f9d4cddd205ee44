package gguf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Tensor is one entry of the tensor table.
type Tensor struct {
	Name   string
	Type   Type
	Dims   []int64 // fastest first; shared, do not change
	Shard  int     // index into File.Shards
	Offset int64   // of the first byte, from the start of the shard's file
	Bytes  int64
	// BigEndian: its bytes hold numbers in that order. False in a big-endian file
	// for types of single bytes only.
	BigEndian bool
}

// TypeName is what a reader of the tensor's bytes must know: its type, such as
// "Q8_0", or "Q8_0 big-endian", which is none that any decoder takes by mistake.
func (t Tensor) TypeName() string {
	if t.BigEndian {
		return t.Type.String() + " big-endian"
	}
	return t.Type.String()
}

// entry is a tensor whose name and dimensions are not in their own memory yet.
type entry struct {
	Tensor
	start, end int64 // of the name
	rank       int
}

// parseTensors reads the table. Offsets are still those of the table, counted
// from the start of the tensor data; place makes them absolute.
func (s *shard) parseTensors(c *cursor, count int) error {
	var entries []entry
	var dims []int64
	for i := range count {
		if i == cap(entries) { // room for more only as they turn out to be there
			entries = slices.Grow(entries, min(max(1<<10, 3*i), count-i))
		}
		e, err := c.tensor(i, &dims)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	return s.keepTensors(c, entries, dims)
}

// keepTensors gives all names one piece of memory, and all dimensions another:
// tables of a hundred thousand tensors are real.
func (s *shard) keepTensors(c *cursor, entries []entry, dims []int64) error {
	var names strings.Builder
	var n int64
	for i := range entries {
		n += entries[i].end - entries[i].start
	}
	names.Grow(int(n))
	s.tensors = make([]Tensor, len(entries))
	seen := make(map[string]struct{}, len(entries))
	for i := range entries {
		e, t := &entries[i], &s.tensors[i]
		at := names.Len()
		names.Write(c.head[e.start:e.end])
		*t = e.Tensor
		t.Name = names.String()[at:]
		if _, twice := seen[t.Name]; twice {
			c.pos = e.start - 8
			return c.fail(ErrDamaged, "tensor %q is there twice", t.Name)
		}
		seen[t.Name] = struct{}{}
		t.Dims, dims = dims[:e.rank:e.rank], dims[e.rank:]
	}
	return nil
}

func (c *cursor) tensor(i int, dims *[]int64) (e entry, err error) {
	at := c.pos
	if e.start, e.end, err = c.text(maxNameBytes, numbered("name of tensor", i)); err != nil {
		return e, err
	}
	name := c.head[e.start:e.end]
	if e.rank, err = c.dims(name, dims); err != nil {
		return e, err
	}
	typ, err := c.u32(ofTensor(name))
	if err != nil {
		return e, err
	}
	off, err := c.u64(ofTensor(name))
	if err != nil {
		return e, err
	}
	e.Type = Type(typ)
	e.BigEndian = c.big && !e.Type.bytewise()
	if e.Bytes, err = e.Type.Bytes((*dims)[len(*dims)-e.rank:]); err != nil {
		return e, &FormatError{Format: "gguf", Path: c.path, Offset: at, Reason: fmt.Sprintf("tensor %q", name), Err: err}
	}
	if off > uint64(c.file.Size()) {
		c.pos = at
		return e, c.fail(ErrTruncated, "tensor %q starts at byte %d of the data, the whole file has %d; get the file again", name, off, c.file.Size())
	}
	e.Offset = int64(off)
	return e, nil
}

// dims appends a tensor's dimensions to all and returns how many there are.
func (c *cursor) dims(name []byte, all *[]int64) (int, error) {
	at := c.pos
	n, err := c.u32(ofTensor(name))
	if err != nil {
		return 0, err
	}
	if n > maxDims {
		c.pos = at
		return 0, c.fail(ErrDamaged, "tensor %q has %d dimensions, want at most %d", name, n, maxDims)
	}
	for i := range int(n) {
		d, err := c.u64(ofTensor(name))
		if err != nil {
			return 0, err
		}
		if int64(d) < 1 {
			c.pos -= 8
			return 0, c.fail(ErrDamaged, "tensor %q: dimension %d is %d, want 1 to 2^63-1", name, i, d)
		}
		*all = append(*all, int64(d))
	}
	return int(n), nil
}

// place makes offsets absolute and checks that every tensor lies in the file,
// aligned, and clear of the others.
func (s *shard) place(start, align int64) error {
	var end int64
	var last string
	for i := range s.tensors {
		t := &s.tensors[i]
		if t.Offset%align != 0 {
			return wrong(ErrDamaged, s.file.Path, "tensor %q starts at byte %d of the data, not aligned to %d", t.Name, t.Offset, align)
		}
		// Neither sum overflows: a start lies in the file (tensor checked it),
		// so only a size near 2^63 could carry the end over.
		t.Offset += start
		if t.Bytes > s.file.Size-t.Offset && (last == "" || t.Bytes > end-t.Offset) {
			end, last = satAdd(t.Offset, t.Bytes), t.Name
		}
	}
	if last != "" {
		return wrong(ErrTruncated, s.file.Path, "tensor %q ends at byte %d, the file at %d: %d bytes are missing; get the file again",
			last, end, s.file.Size, end-s.file.Size)
	}
	return s.checkSpans(start, align)
}

func satAdd(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

// checkSpans makes sure that each tensor fills the span up to the next one, but
// for the padding. Writers leave no holes: where there is one, the tensor's size
// in the file is not what its type and dimensions say.
func (s *shard) checkSpans(start, align int64) error {
	order := make([]*Tensor, len(s.tensors))
	for i := range order {
		order[i] = &s.tensors[i]
	}
	slices.SortStableFunc(order, func(a, b *Tensor) int { return cmp.Compare(a.Offset, b.Offset) })
	damaged := func(at int64, format string, args ...any) error {
		return &FormatError{Format: "gguf", Path: s.file.Path, Offset: at, Err: ErrDamaged, Reason: fmt.Sprintf(format, args...)}
	}
	for i, t := range order {
		if i == 0 {
			if t.Offset != start {
				return damaged(start, "the first tensor, %q, starts %d bytes after the start of the data", t.Name, t.Offset-start)
			}
			continue
		}
		before := order[i-1]
		span := t.Offset - before.Offset
		if before.Bytes > span {
			return damaged(t.Offset, "tensors %q and %q overlap", before.Name, t.Name)
		}
		if span-before.Bytes >= align {
			return damaged(before.Offset, "tensor %q takes %d bytes by its type %v and its dimensions %v, but the next, %q, starts %d bytes after it; the file is damaged, or of a tool that means another type by this number",
				before.Name, before.Bytes, before.Type, before.Dims, t.Name, span)
		}
	}
	return nil
}
