package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

var errSurplus = errors.New("more bytes than its type and dimensions take")

// output counts what went into the file (pos), and what of it has arrived in out.
type output struct {
	buf     *bufio.Writer
	arrived counter
	pos     int64
}

type counter struct {
	out io.Writer
	n   int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	c.n += int64(n)
	return n, err
}

func newOutput(out io.Writer) *output {
	o := &output{arrived: counter{out: out}}
	o.buf = bufio.NewWriterSize(&o.arrived, 256<<10)
	return o
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.buf.Write(p)
	o.pos += int64(n)
	return n, err
}

func (o *output) pad(align int64) error {
	var zero [4096]byte
	for n := (align - o.pos%align) % align; n > 0; {
		step, err := o.Write(zero[:min(n, int64(len(zero)))])
		if err != nil {
			return fmt.Errorf("gguf: write padding: %w", err)
		}
		n -= int64(step)
	}
	return nil
}

// limited lets a tensor's function write so many bytes and no more.
type limited struct {
	out  io.Writer
	left int64
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) > l.left {
		l.over = true
		return 0, errSurplus
	}
	n, err := l.out.Write(p)
	l.left -= int64(n)
	return n, err
}

func (w *Writer) writeFile(out io.Writer, kvs []writerKey, tensors []writerTensor) (int64, error) {
	o := newOutput(out)
	err := w.writeAll(o, kvs, tensors)
	if ferr := o.buf.Flush(); err == nil && ferr != nil {
		err = fmt.Errorf("gguf: write: %w", ferr)
	}
	return o.arrived.n, err
}

func (w *Writer) writeAll(o *output, kvs []writerKey, tensors []writerTensor) error {
	head, err := w.header(kvs, tensors)
	if err != nil {
		return err
	}
	if _, err := o.Write(head); err != nil {
		return fmt.Errorf("gguf: write header: %w", err)
	}
	for _, t := range tensors {
		if err := o.pad(w.align()); err != nil {
			return err
		}
		l := &limited{out: o, left: t.bytes}
		err := t.write(l)
		switch {
		case l.over: // also where the function kept it to itself
			return fmt.Errorf("gguf: write tensor %q: %w: %d", t.name, errSurplus, t.bytes)
		case err != nil:
			return fmt.Errorf("gguf: write tensor %q: %w", t.name, err)
		case l.left != 0:
			return fmt.Errorf("gguf: write tensor %q: %d bytes written, want %d", t.name, t.bytes-l.left, t.bytes)
		}
	}
	return o.pad(w.align())
}

// byteOrder reads and appends numbers.
type byteOrder interface {
	binary.ByteOrder
	binary.AppendByteOrder
}

func orderOf(big bool) byteOrder {
	if big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// header is all that stands before the tensor data.
func (w *Writer) header(kvs []writerKey, tensors []writerTensor) ([]byte, error) {
	if w.Align != 0 {
		kvs = append(kvs[:len(kvs):len(kvs)], writerKey{keyAlignment, w.Align})
	}
	order := orderOf(w.BigEndian)
	b := order.AppendUint32([]byte(magic), w.version())
	b = order.AppendUint64(b, uint64(len(tensors)))
	b = order.AppendUint64(b, uint64(len(kvs)))
	var err error
	for _, e := range kvs {
		if b, err = appendValue(appendString(b, e.key, order), e.value, order); err != nil {
			return nil, fmt.Errorf("gguf: write: key %q: %w", e.key, err)
		}
	}
	var offset int64
	for _, t := range tensors {
		b = order.AppendUint32(appendString(b, t.name, order), uint32(len(t.dims)))
		for _, d := range t.dims {
			b = order.AppendUint64(b, uint64(d))
		}
		b = order.AppendUint64(order.AppendUint32(b, uint32(t.typ)), uint64(offset))
		offset += (t.bytes + w.align() - 1) / w.align() * w.align()
	}
	if len(b) > maxHeaderBytes && !w.Unchecked {
		return nil, fmt.Errorf("gguf: write: a header of %d bytes, the limit is %d", len(b), maxHeaderBytes)
	}
	return append(b, make([]byte, (w.align()-int64(len(b))%w.align())%w.align())...), nil
}
