package widen

import (
	"io"

	"outrider/layout/gguf"
)

// write streams the enlarged tensor, and counts the uneven blocks of its source.
func (t tensor) write(source *shards, out io.Writer) (uneven int64, err error) {
	if t.cols.repeat == 1 && t.rows.repeat == 1 {
		return 0, t.copy(source, out)
	}
	dims := t.source.Dims
	rows := int64(1)
	if len(dims) > 1 {
		rows = dims[1]
	}
	row := t.source.Bytes
	for _, d := range dims[1:] {
		row /= d
	}
	g := newRowGrower(t, row, rows)
	part := rows / int64(t.rows.parts)
	matrices := t.source.Bytes / (row * rows)
	for m := range matrices {
		for p := range int64(t.rows.parts) {
			first := (m*rows + p*part) * row
			for again := range t.rows.repeat {
				if err := g.grow(source, out, first, part, again == 0); err != nil {
					return g.uneven, err
				}
			}
		}
	}
	return g.uneven, nil
}

// copy streams a tensor that stays as it is.
func (t tensor) copy(source *shards, out io.Writer) error {
	buf := make([]byte, min(t.source.Bytes, chunk))
	for at := int64(0); at < t.source.Bytes; {
		b := buf[:min(int64(len(buf)), t.source.Bytes-at)]
		if err := source.read(t.source, b, at); err != nil {
			return err
		}
		if _, err := out.Write(b); err != nil {
			return err
		}
		at += int64(len(b))
	}
	return nil
}

// rowGrower repeats the columns of rows.
type rowGrower struct {
	tensor gguf.Tensor
	cols   axis
	divide *divider
	row    int64  // bytes of a source's row
	in     []byte // some rows
	part   []byte // one part of a row, divided
	uneven int64
}

func newRowGrower(t tensor, row, rows int64) *rowGrower {
	rows = min(rows, max(chunk/row, 1))
	return &rowGrower{
		tensor: t.source, cols: t.cols, divide: newDivider(t.source.Type, t.shift), row: row,
		in: make([]byte, rows*row), part: make([]byte, row/int64(t.cols.parts)),
	}
}

// grow reads n rows from a byte of the tensor on and writes them enlarged.
func (g *rowGrower) grow(source *shards, out io.Writer, from, n int64, count bool) error {
	for n > 0 {
		in := g.in[:min(int64(len(g.in)), n*g.row)]
		if err := source.read(g.tensor, in, from); err != nil {
			return err
		}
		for at := 0; at < len(in); at += len(g.part) {
			if err := g.repeat(out, in[at:at+len(g.part)], count); err != nil {
				return err
			}
		}
		from, n = from+int64(len(in)), n-int64(len(in))/g.row
	}
	return nil
}

// repeat writes the copies of one part of a row.
func (g *rowGrower) repeat(out io.Writer, in []byte, count bool) error {
	d := g.divide
	d.first(g.part, in)
	if count {
		g.uneven += int64(len(d.uneven))
	}
	for number := range uint64(g.cols.repeat) {
		if number > 0 {
			d.next(g.part, in, number)
		}
		if _, err := out.Write(g.part); err != nil {
			return err
		}
	}
	return nil
}
