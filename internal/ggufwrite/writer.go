package ggufwrite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Writer collects metadata and tensors of one checkpoint. The zero value is
// ready to use. Not safe for concurrent use.
type Writer struct {
	// Alignment of tensor data in bytes; 0 means 32, the format's default. Any
	// other value is also written as general.alignment.
	Alignment uint32
	// Version of the format; 0 means 3.
	Version uint32

	kvs     []kv
	tensors []tensor
	err     error // the first error of Set; reported when writing
}

type kv struct {
	key   string
	value []byte // kind and value as they stand in the file
}

type tensor struct {
	name  string
	typ   uint32
	dims  []int64
	bytes int64
	write func(io.Writer) error
}

// Set adds a metadata value: string, bool, float32, float64, an integer of a
// fixed width, or a slice of one of these. A key set twice is written twice.
// An error (a value of another type) is reported when writing.
func (w *Writer) Set(key string, value any) {
	b, err := encode(value)
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("ggufwrite: key %q: %w", key, err)
	}
	w.kvs = append(w.kvs, kv{key, b})
}

// Tensor adds a tensor with its bytes, which must not change until the file is written.
func (w *Writer) Tensor(name string, typ uint32, dims []int64, data []byte) {
	w.tensors = append(w.tensors, tensor{name, typ, dims, int64(len(data)), func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	}})
}

// Stream is what TensorFunc calls to get a tensor's bytes.
type Stream struct {
	Bytes int64
	Write func(io.Writer) error // must write Bytes bytes; called once per writing
}

// TensorFunc adds a tensor whose bytes are made while the file is written, for
// files larger than memory.
func (w *Writer) TensorFunc(name string, typ uint32, dims []int64, s Stream) {
	w.tensors = append(w.tensors, tensor{name, typ, dims, s.Bytes, s.Write})
}

// Bytes is the whole checkpoint as one file.
func (w *Writer) Bytes() ([]byte, error) {
	var buf bytes.Buffer
	_, err := w.WriteTo(&buf)
	return buf.Bytes(), err
}

// WriteTo writes the whole checkpoint as one file.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	return w.file(out, w.kvs, w.tensors)
}

// countingWriter knows how far it has got.
type countingWriter struct {
	out io.Writer
	n   int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	c.n += int64(n)
	return n, err
}

func (w *Writer) file(out io.Writer, kvs []kv, tensors []tensor) (int64, error) {
	c := &countingWriter{out: out}
	align := w.align()
	if align == 0 || align&(align-1) != 0 {
		return 0, fmt.Errorf("ggufwrite: alignment %d is no power of two", align)
	}
	if _, err := c.Write(w.header(kvs, tensors)); err != nil {
		return c.n, fmt.Errorf("ggufwrite: header: %w", err)
	}
	for _, t := range tensors {
		if err := pad(c, align); err != nil {
			return c.n, err
		}
		start := c.n
		if err := t.write(c); err != nil {
			return c.n, fmt.Errorf("ggufwrite: tensor %q: %w", t.name, err)
		}
		if got := c.n - start; got != t.bytes {
			return c.n, fmt.Errorf("ggufwrite: tensor %q: %d bytes written, want %d", t.name, got, t.bytes)
		}
	}
	return c.n, pad(c, align)
}

func (w *Writer) align() int64 {
	if w.Alignment == 0 {
		return 32
	}
	return int64(w.Alignment)
}

func pad(c *countingWriter, align int64) error {
	if _, err := c.Write(make([]byte, (align-c.n%align)%align)); err != nil {
		return fmt.Errorf("ggufwrite: padding: %w", err)
	}
	return nil
}

func (w *Writer) header(kvs []kv, tensors []tensor) []byte {
	version := w.Version
	if version == 0 {
		version = 3
	}
	if w.Alignment != 0 {
		b, _ := encode(w.Alignment)
		kvs = append(kvs[:len(kvs):len(kvs)], kv{"general.alignment", b})
	}
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("GGUF"), version)
	b = le.AppendUint64(b, uint64(len(tensors)))
	b = le.AppendUint64(b, uint64(len(kvs)))
	for _, e := range kvs {
		b = append(appendString(b, e.key), e.value...)
	}
	var offset int64
	for _, t := range tensors {
		b = le.AppendUint32(appendString(b, t.name), uint32(len(t.dims)))
		for _, d := range t.dims {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint64(le.AppendUint32(b, t.typ), uint64(offset))
		offset += (t.bytes + w.align() - 1) / w.align() * w.align()
	}
	return b
}
