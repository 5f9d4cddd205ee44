package gguf

import (
	"bytes"
	"io"
)

// Writer writes a checkpoint: metadata and tensors in the order of the calls, so
// that equal calls give equal bytes. The header is made in memory, tensor data
// streams through, so a file may be larger than memory. The zero value is ready
// to use; writing twice is allowed. Not safe for concurrent use.
//
// What is wrong is reported when writing, before the first byte: a key or tensor
// name that is empty, too long or there twice, a value of a type that GGUF has
// not, a tensor whose type and dimensions give no size. What is written so, Open
// reads.
type Writer struct {
	// Version of the format, 2 or 3; 0 means 3.
	Version uint32
	// BigEndian swaps the numbers of header and metadata (version 3 only). The
	// tensors' bytes are the caller's, and should be big-endian too.
	BigEndian bool
	// Align is the alignment of tensor data in bytes, a power of two; 0 means 32,
	// the format's default. Any other value is also written as general.alignment.
	Align uint32
	// Unchecked writes what it is given even where no reader will have it: files
	// for tests of readers.
	Unchecked bool

	kvs     []writerKey
	tensors []writerTensor
}

type writerKey struct {
	key   string
	value any
}

type writerTensor struct {
	name  string
	typ   Type
	dims  []int64
	bytes int64 // of what write gives; -1: as type and dimensions say
	write func(io.Writer) error
}

// Set adds a metadata value: a string, bool, float32, float64, an integer of a
// fixed width, a slice of one of these, or a Value of another checkpoint. A slice
// must not change until all is written. general.alignment comes from Align.
func (w *Writer) Set(key string, value any) {
	w.kvs = append(w.kvs, writerKey{key, value})
}

// Tensor adds a tensor of these dimensions, fastest first, whose bytes are made
// while the file is written: write must write exactly typ.Bytes(dims) bytes. It
// is called once in each writing.
func (w *Writer) Tensor(name string, typ Type, dims []int64, write func(io.Writer) error) {
	w.tensors = append(w.tensors, writerTensor{name, typ, dims, -1, write})
}

// TensorBytes adds a tensor with its bytes, which must not change until all is written.
func (w *Writer) TensorBytes(name string, typ Type, dims []int64, data []byte) {
	w.tensors = append(w.tensors, writerTensor{name, typ, dims, int64(len(data)), func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	}})
}

// Bytes is the whole checkpoint as one file in memory.
func (w *Writer) Bytes() ([]byte, error) {
	var buf bytes.Buffer
	_, err := w.WriteTo(&buf)
	return buf.Bytes(), err
}

// WriteTo writes the whole checkpoint as one file. Errors of out and of the
// tensors' functions are wrapped.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	tensors, err := w.check()
	if err != nil {
		return 0, err
	}
	return w.writeFile(out, w.kvs, tensors)
}

// Header is what WriteTo writes before the tensor data, padding included: for those
// who give an engine the metadata and place the tensors' bytes themselves. No
// tensor's function is called.
func (w *Writer) Header() ([]byte, error) {
	tensors, err := w.check()
	if err != nil {
		return nil, err
	}
	return w.header(w.kvs, tensors)
}
