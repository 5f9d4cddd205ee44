package learned

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"unicode/utf8"

	"outrider/layout"
	"outrider/router"
)

// The file, version 1; the package's comment has the picture.
const (
	magic   = "\x93ORLEARN"
	version = 1

	headBytes = 8 + 4     // magic, version
	dimBytes  = 7*4 + 2   // up to the name's length
	tailBytes = 4         // CRC-32C
	maxName   = 1<<16 - 1 // bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Save writes the network.
func (m *Model) Save(w io.Writer) error {
	d, order := m.dims, binary.LittleEndian
	b := make([]byte, 0, headBytes+dimBytes+len(m.name)+4*(d.Shape.Layers+d.Numbers())+tailBytes)
	b = append(b, magic...)
	for _, n := range []int{version, router.FeatureVersion, router.FeatureColumns(), d.Shape.Layers, d.Shape.Experts, d.Shape.TopK, d.Embedding, d.Hidden} {
		b = order.AppendUint32(b, uint32(n))
	}
	b = append(order.AppendUint16(b, uint16(len(m.name))), m.name...)
	for l := range d.Shape.Layers {
		b = order.AppendUint32(b, uint32(d.Shape.LayerID(l)))
	}
	b = appendNumbers(appendNumbers(b, m.parameters.Centre), m.parameters.Scale)
	for l := range m.parameters.Layers {
		for _, part := range m.parameters.Layers[l].parts(d) {
			b = appendNumbers(b, *part.numbers)
		}
	}
	b = order.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("learned: write the network: %w", err)
	}
	return nil
}

func appendNumbers(b []byte, numbers []float32) []byte {
	for _, x := range numbers {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// Load reads a network and expects nothing after it. It fails with ErrNotModel,
// ErrVersion, ErrFeatures or ErrDamaged, or with what r fails with. It takes no more
// memory than a few times what r holds.
func Load(r io.Reader) (*Model, error) {
	head := make([]byte, headBytes+dimBytes)
	n, err := io.ReadFull(r, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("learned: read the network: %w", err)
	}
	if err := checkHead(head[:n]); err != nil {
		return nil, err
	}
	d, name, err := readDims(head)
	if err != nil {
		return nil, err
	}
	size := name + 4*(d.Shape.Layers+d.Numbers()) + tailBytes
	rest, err := io.ReadAll(io.LimitReader(r, int64(size)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("learned: read the network: %w", err)
	case len(rest) < size:
		return nil, damaged(len(head)+len(rest), "the file ends here, want %d bytes", len(head)+size)
	case len(rest) > size:
		return nil, damaged(len(head)+size, "bytes follow the end")
	}
	body, sum := rest[:size-tailBytes], binary.LittleEndian.Uint32(rest[size-tailBytes:])
	if got := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, body); got != sum {
		return nil, damaged(len(head)+len(body), "checksum is %08x, that of the bytes before is %08x", sum, got)
	}
	return readBody(d, body[:name], body[name:])
}

// checkHead tells a foreign file from one of another version, and from one that
// is cut.
func checkHead(head []byte) error {
	if len(head) < headBytes || string(head[:len(magic)]) != magic {
		return fmt.Errorf("learned: %w: the file begins with %q, a learned forecast with %q", ErrNotModel, head[:min(len(head), len(magic))], magic)
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v != version {
		return fmt.Errorf("learned: %w: the file has version %d, this program reads %d", ErrVersion, v, version)
	}
	if len(head) < headBytes+dimBytes {
		return damaged(len(head), "the file ends in its header")
	}
	return nil
}

// readDims reads the dimensions and the length of the name.
func readDims(head []byte) (d Dims, name int, err error) {
	var n [7]uint32
	for i := range n {
		n[i] = binary.LittleEndian.Uint32(head[headBytes+4*i:])
	}
	if n[0] != router.FeatureVersion || n[1] != uint32(router.FeatureColumns()) {
		return d, 0, fmt.Errorf("learned: %w: version %d with %d columns, this program has version %d with %d; train it anew", ErrFeatures,
			n[0], n[1], router.FeatureVersion, router.FeatureColumns())
	}
	d = Dims{Shape: layout.Shape{Layers: int(n[2]), Experts: int(n[3]), TopK: int(n[4])}, Embedding: int(n[5]), Hidden: int(n[6])}
	if err := d.Validate(); err != nil {
		return d, 0, damaged(headBytes, "%w", err)
	}
	return d, int(binary.LittleEndian.Uint16(head[headBytes+4*len(n):])), nil
}

// readBody reads what the dimensions promise. Its length is right.
func readBody(d Dims, name, b []byte) (*Model, error) {
	if !utf8.Valid(name) {
		return nil, damaged(headBytes+dimBytes, "the model's name is not valid UTF-8")
	}
	d.Shape.LayerIDs = make([]int, d.Shape.Layers)
	for l := range d.Shape.LayerIDs {
		d.Shape.LayerIDs[l] = int(binary.LittleEndian.Uint32(b[4*l:]))
	}
	in := numberReader{bytes: b[4*d.Shape.Layers:]}
	spread := router.FeatureColumns() + 1
	p := Parameters{Centre: in.take(spread), Scale: in.take(spread), Layers: make([]Layer, d.Shape.Layers)}
	for l := range p.Layers {
		for _, part := range p.Layers[l].parts(d) {
			*part.numbers = in.take(part.length)
		}
	}
	m, err := NewModel(string(bytes.Clone(name)), d, p)
	if err != nil {
		return nil, damaged(headBytes+dimBytes+len(name), "%w", err)
	}
	return m, nil
}

// numberReader hands out the numbers of a body whose length is known to be right.
type numberReader struct{ bytes []byte }

func (r *numberReader) take(n int) []float32 {
	numbers := make([]float32, n)
	for i := range numbers {
		numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(r.bytes[4*i:]))
	}
	r.bytes = r.bytes[4*n:]
	return numbers
}

// damaged says where a file is wrong and how.
func damaged(offset int, format string, args ...any) error {
	return fmt.Errorf("learned: %w at byte %d: %w", ErrDamaged, offset, fmt.Errorf(format, args...))
}
