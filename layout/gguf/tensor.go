package gguf

import (
	"cmp"
	"fmt"
	"slices"
)

// Tensor is one entry of the tensor table.
type Tensor struct {
	Name   string
	Type   Type
	Dims   []int64 // fastest first; shared, do not change
	Shard  int     // index into File.Shards
	Offset int64   // of the first byte, from the start of the shard's file
	Bytes  int64
}

// parseTensors reads the table. Offsets are still those of the table, counted
// from the start of the tensor data; place makes them absolute.
func (s *shard) parseTensors(c *cursor, count int) error {
	names := make(map[string]struct{}, min(count, 1024))
	for i := range count {
		at := c.pos
		t, err := c.tensor(i)
		if err != nil {
			return err
		}
		if _, twice := names[t.Name]; twice {
			c.pos = at
			return c.fail(ErrDamaged, "tensor %q is there twice", t.Name)
		}
		names[t.Name] = struct{}{}
		s.tensors = append(s.tensors, t)
	}
	return nil
}

func (c *cursor) tensor(i int) (Tensor, error) {
	at := c.pos
	name, err := c.name(maxNameBytes, fmt.Sprintf("name of tensor %d", i))
	if err != nil {
		return Tensor{}, err
	}
	t := Tensor{Name: name}
	if t.Dims, err = c.dims(name); err != nil {
		return t, err
	}
	typ, err := c.u32(name)
	if err != nil {
		return t, err
	}
	t.Type = Type(typ)
	off, err := c.u64(name)
	if err != nil {
		return t, err
	}
	if t.Bytes, err = t.Type.Bytes(t.Dims); err != nil {
		return t, &FormatError{Format: "gguf", Path: c.path, Offset: at, Reason: fmt.Sprintf("tensor %q", name), Err: err}
	}
	if off > uint64(c.file.Size()) {
		c.pos = at
		return t, c.fail(ErrTruncated, "tensor %q starts at byte %d of the data, the whole file has %d; get the file again", name, off, c.file.Size())
	}
	t.Offset = int64(off)
	return t, nil
}

func (c *cursor) dims(name string) ([]int64, error) {
	at := c.pos
	n, err := c.u32(name)
	if err != nil {
		return nil, err
	}
	if n > maxDims {
		c.pos = at
		return nil, c.fail(ErrDamaged, "tensor %q has %d dimensions, want at most %d", name, n, maxDims)
	}
	dims := make([]int64, n)
	for i := range dims {
		d, err := c.u64(name)
		if err != nil {
			return nil, err
		}
		if int64(d) < 1 {
			c.pos -= 8
			return nil, c.fail(ErrDamaged, "tensor %q: dimension %d is %d, want 1 to 2^63-1", name, i, d)
		}
		dims[i] = int64(d)
	}
	return dims, nil
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
	return s.disjoint()
}

func satAdd(a, b int64) int64 {
	if sum := a + b; sum >= a {
		return sum
	}
	return 1<<63 - 1
}

func (s *shard) disjoint() error {
	order := make([]*Tensor, len(s.tensors))
	for i := range order {
		order[i] = &s.tensors[i]
	}
	slices.SortFunc(order, func(a, b *Tensor) int { return cmp.Compare(a.Offset, b.Offset) })
	for i := 1; i < len(order); i++ {
		a, b := order[i-1], order[i]
		if a.Offset+a.Bytes > b.Offset {
			return &FormatError{Format: "gguf", Path: s.file.Path, Offset: b.Offset, Err: ErrDamaged,
				Reason: fmt.Sprintf("tensors %q and %q overlap", a.Name, b.Name)}
		}
	}
	return nil
}
