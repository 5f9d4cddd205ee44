package trace

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"outrider/layout"
)

// The binary form, version 1; the package comment has the picture.
const (
	traceMagic = "\x93ORTRACE"
	version    = 1

	fileHeadBytes  = 12 // magic, version
	frameHeadBytes = 8  // kind, length
	frameTailBytes = 4  // CRC-32C

	frameHeader = 1
	frameTokens = 2
	frameEnd    = 3

	// maxFrame holds the largest token (MaxIDs ids with weights) with room to
	// spare; frameTarget is when a writer ends a frame.
	maxFrame    = 4 << 20
	frameTarget = 64 << 10

	flagPhase = 0b011 // the token's Phase
	flagShort = 0b100 // rows use fewer ids than top-k; their lengths follow
	flagsAll  = flagPhase | flagShort

	headerWeights  = 1 << 0
	headerTokens   = 1 << 1
	headerLayerIDs = 1 << 2
	headerFacts    = 1 << 3
	headerAll      = headerWeights | headerTokens | headerLayerIDs | headerFacts
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFileHead begins a file.
func appendFileHead(b []byte, magic string) []byte {
	return binary.LittleEndian.AppendUint32(append(b, magic...), version)
}

// checkFileHead tells a foreign file from one of another version.
func checkFileHead(head []byte, magic, what string) error {
	if string(head[:len(magic)]) != magic {
		return fmt.Errorf("trace: %w: the file begins with %q, a %s with %q", ErrNotTrace, head[:len(magic)], what, magic)
	}
	if v := binary.LittleEndian.Uint32(head[len(magic):]); v != version {
		return fmt.Errorf("trace: %w: the %s has version %d, this program reads %d", ErrVersion, what, v, version)
	}
	return nil
}

// sealFrame completes a frame in place: b holds frameHeadBytes of room and then
// the payload.
func sealFrame(b []byte, kind uint32) []byte {
	binary.LittleEndian.PutUint32(b, kind)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)-frameHeadBytes))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// cursor reads a payload. Once it runs over the end it is bad, and everything
// it then answers is zero.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.bad = true
		c.b = nil
		return nil
	}
	p := c.b[:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() byte {
	if p := c.bytes(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.bytes(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.bytes(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 {
		v := uint64(c.b[0])
		c.b = c.b[1:]
		return v
	}
	v, n := binary.Uvarint(c.b)
	c.skip(n)
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	c.skip(n)
	return v
}

func (c *cursor) skip(n int) {
	if n <= 0 {
		c.bad = true
		c.b = nil
		return
	}
	c.b = c.b[n:]
}

// text reads a length and that many bytes.
func (c *cursor) text() string {
	n := c.uvarint()
	if n > MaxText {
		c.bad = true
		return ""
	}
	return string(c.bytes(int(n)))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendShape writes layers, experts and top-k.
func appendShape(b []byte, s layout.Shape) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Layers))
	b = binary.LittleEndian.AppendUint32(b, uint32(s.Experts))
	return binary.LittleEndian.AppendUint32(b, uint32(s.TopK))
}

// shape is the inverse of appendShape; the answer is not validated.
func (c *cursor) shape() layout.Shape {
	return layout.Shape{Layers: int(c.u32()), Experts: int(c.u32()), TopK: int(c.u32())}
}

// appendLayerIDs writes the layer ids as differences.
func appendLayerIDs(b []byte, ids []int) []byte {
	last := 0
	for _, id := range ids {
		b = binary.AppendUvarint(b, uint64(id-last))
		last = id
	}
	return b
}

func (c *cursor) layerIDs(n int) []int {
	if n < 1 || n > layout.MaxLayers || n > len(c.b) {
		c.bad = true
		return nil
	}
	ids, last := make([]int, n), uint64(0)
	for i := range ids {
		d := c.uvarint()
		if d > math.MaxInt32 || last+d > math.MaxInt32 {
			c.bad = true
			return nil
		}
		last += d
		ids[i] = int(last)
	}
	return ids
}

// appendHeader writes the payload of a header frame.
func appendHeader(b []byte, h *Header) []byte {
	b = appendShape(b, h.Shape)
	var flags byte
	if h.Weights {
		flags |= headerWeights
	}
	if h.Tokens {
		flags |= headerTokens
	}
	if h.Shape.LayerIDs != nil {
		flags |= headerLayerIDs
	}
	facts := h.factBits()
	if facts != 0 {
		flags |= headerFacts
	}
	b = append(b, flags, byte(h.Phase))
	if facts != 0 {
		b = append(b, facts)
	}
	b = appendLayerIDs(b, h.Shape.LayerIDs)
	b = appendText(b, h.Model)
	b = appendText(b, h.Source)
	return appendText(b, h.Note)
}

// parseHeader reads the payload of a header frame and validates it.
func parseHeader(payload []byte) (Header, error) {
	c := cursor{b: payload}
	h := Header{Shape: c.shape()}
	flags := c.u8()
	h.Phase = Phase(c.u8())
	if flags&^headerAll != 0 {
		return h, fmt.Errorf("header has unknown flags %#x", flags)
	}
	// Before the layer ids, whose number it gives.
	if err := h.Shape.Validate(); err != nil {
		return h, err
	}
	h.Weights, h.Tokens = flags&headerWeights != 0, flags&headerTokens != 0
	if flags&headerFacts != 0 {
		h.setFactBits(c.u8())
	}
	if flags&headerLayerIDs != 0 {
		h.Shape.LayerIDs = c.layerIDs(h.Shape.Layers)
	}
	h.Model, h.Source, h.Note = c.text(), c.text(), c.text()
	if c.bad || len(c.b) > 0 {
		return h, fmt.Errorf("header does not fill its frame of %d bytes", len(payload))
	}
	return h, h.validate()
}

// idBytes is the width of an expert id.
func idBytes(experts int) int {
	if experts <= 256 {
		return 1
	}
	return 2
}
