package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Writer collects the tensors of one model and writes them as one file
// (WriteTo) or as shards with an index (WriteShards). Tensor data is streamed:
// no more than what a callback writes at once is in memory. The zero value is
// ready to use; it may be written more than once. Not safe for concurrent use.
type Writer struct {
	// Sort puts the tensors of each file in the order of the format's own writer:
	// the widest dtypes first, which keeps all of them aligned, then by name.
	// Without it they stay in the order in which they were added.
	Sort bool
	// Unpadded leaves out the spaces that bring the header to a multiple of 8
	// bytes. The format allows it, and tensors then start at odd places.
	Unpadded bool

	meta    map[string]string
	tensors []writerTensor
	names   map[string]struct{}
	err     error // the first of Tensor and Meta; reported when writing
}

type writerTensor struct {
	name, dtype string
	shape       []int64
	bytes       int64
	write       func(io.Writer) error
}

// Meta sets one value of the file's own metadata; it stands in every shard.
func (w *Writer) Meta(key, value string) {
	if !utf8.ValidString(key) || !utf8.ValidString(value) || len(key) > maxNameBytes {
		w.fail("metadata %.40q: %.40q is no text, or its name longer than %d bytes", key, value, maxNameBytes)
	}
	if w.meta == nil {
		w.meta = map[string]string{}
	}
	w.meta[key] = value
}

// Tensor adds a tensor; shape is slowest first, and empty for a single number.
// write is called once per writing, and must write exactly as many bytes as
// dtype and shape tell: one more is its error at once, one fewer the Writer's.
// A dtype that DTypeBits does not know is an error, reported when writing, as
// are a name that stands twice and a shape of no whole number of bytes.
func (w *Writer) Tensor(name, dtype string, shape []int64, write func(io.Writer) error) {
	bits := dtypeBits[dtype]
	if bits == 0 {
		w.fail("tensor %q: dtype %q is not known", name, dtype)
		return
	}
	size, ok := sizeOf(bits, shape)
	if !ok || slices.ContainsFunc(shape, func(d int64) bool { return d < 0 }) {
		w.fail("tensor %q: %s %v is no whole number of bytes", name, dtype, shape)
		return
	}
	w.add(writerTensor{name, dtype, slices.Clone(shape), size, write})
}

// TensorBytes adds a tensor with its bytes, which must not change until all is
// written. Their number must fit dtype and shape, if the dtype is known.
func (w *Writer) TensorBytes(name, dtype string, shape []int64, data []byte) {
	write := func(out io.Writer) error {
		_, err := out.Write(data)
		return err
	}
	if dtypeBits[dtype] == 0 && dtype != "" {
		w.add(writerTensor{name, dtype, slices.Clone(shape), int64(len(data)), write})
		return
	}
	w.Tensor(name, dtype, shape, write)
}

func (w *Writer) add(t writerTensor) {
	switch {
	case t.name == "" || t.name == metadataKey || len(t.name) > maxNameBytes || !utf8.ValidString(t.name) || !utf8.ValidString(t.dtype):
		w.fail("tensor %.40q: that is no name of a tensor", t.name)
	case len(t.shape) > maxDims:
		w.fail("tensor %q: %d dimensions, want at most %d", t.name, len(t.shape), maxDims)
	}
	if _, twice := w.names[t.name]; twice {
		w.fail("tensor %q is added twice", t.name)
	}
	if w.names == nil {
		w.names = map[string]struct{}{}
	}
	w.names[t.name] = struct{}{}
	w.tensors = append(w.tensors, t)
}

func (w *Writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("safetensors: write: "+format, args...)
	}
}

// WriteTo writes all tensors as one file and returns how many bytes it wrote.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.file(out, w.tensors)
	if err != nil {
		err = fmt.Errorf("safetensors: write: %w", err)
	}
	return n, err
}

func (w *Writer) file(out io.Writer, tensors []writerTensor) (int64, error) {
	if w.Sort {
		tensors = slices.SortedFunc(slices.Values(tensors), inReferenceOrder)
	}
	head, err := w.header(tensors)
	if err != nil {
		return 0, err
	}
	written, err := out.Write(head)
	n := int64(written)
	if err != nil {
		return n, fmt.Errorf("header: %w", err)
	}
	for i := range tensors {
		t := &tensors[i]
		exact := exactWriter{out: out, left: t.bytes}
		err := t.write(&exact)
		n += t.bytes - exact.left
		if err != nil {
			return n, fmt.Errorf("tensor %q: %w", t.name, err)
		}
		if exact.left != 0 {
			return n, fmt.Errorf("tensor %q: %d bytes written, want %d", t.name, t.bytes-exact.left, t.bytes)
		}
	}
	return n, nil
}

// exactWriter takes no more bytes than it was told.
type exactWriter struct {
	out  io.Writer
	left int64
}

func (e *exactWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > e.left {
		return 0, fmt.Errorf("%d bytes more than dtype and shape tell", int64(len(p))-e.left)
	}
	n, err := e.out.Write(p)
	e.left -= int64(n)
	return n, err
}

// header returns the length and the object, with the keys in the order in which
// the format's own writer has them.
func (w *Writer) header(tensors []writerTensor) ([]byte, error) {
	var b bytes.Buffer
	b.Write(make([]byte, lengthBytes))
	b.WriteByte('{')
	if len(w.meta) > 0 {
		writeJSON(&b, metadataKey)
		b.WriteString(":{")
		for i, key := range slices.Sorted(maps.Keys(w.meta)) {
			comma(&b, i)
			writeJSON(&b, key)
			b.WriteByte(':')
			writeJSON(&b, w.meta[key])
		}
		b.WriteByte('}')
	}
	var end int64
	for i := range tensors {
		t := &tensors[i]
		if t.bytes > math.MaxInt64-end {
			return nil, fmt.Errorf("tensor %q ends beyond what a file can hold", t.name)
		}
		comma(&b, i+len(w.meta))
		writeJSON(&b, t.name)
		b.WriteString(`:{"dtype":`)
		writeJSON(&b, t.dtype)
		shape := strings.ReplaceAll(fmt.Sprint(t.shape), " ", ",")
		fmt.Fprintf(&b, `,"shape":%s,"data_offsets":[%d,%d]}`, shape, end, end+t.bytes)
		end += t.bytes
	}
	b.WriteByte('}')
	for b.Len()%lengthBytes != 0 && !w.Unpadded {
		b.WriteByte(' ')
	}
	n := b.Len() - lengthBytes
	if n > maxHeaderBytes {
		return nil, fmt.Errorf("the header would have %d bytes, the limit is %d: write more shards", n, maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(n))
	return b.Bytes(), nil
}

func comma(b *bytes.Buffer, i int) {
	if i > 0 {
		b.WriteByte(',')
	}
}

// writeJSON appends a string without the escapes that only web pages need.
func writeJSON(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)       // a string into memory cannot fail
	b.Truncate(b.Len() - 1) // the line's end
}

// referenceOrder is the order in which the format's own writer ranks dtypes.
var referenceOrder = []string{
	"U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16",
	"F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "F6_E3M2", "F6_E2M3", "F4", "BOOL",
}

// inReferenceOrder puts dtypes that are not known last.
func inReferenceOrder(a, b writerTensor) int {
	rank := func(t writerTensor) uint { return uint(slices.Index(referenceOrder, t.dtype)) }
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.name, b.name))
}
