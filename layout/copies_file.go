package layout

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// copies.bin: header, the size of each lane's file of copies, rows, trailer; and
// the block with which each of these files starts. All little-endian;
// docs/store-format.md has the tables.
const (
	copiesMagic   = "OUTRCPY\n"
	copiesVersion = 1
	copiesHeader  = 64
	copiesRow     = 32
	copiesTrailer = 4

	copyMagic       = "OUTRCPL\n"
	copyHeaderBytes = 64        // of which the block holds something
	copyHeaderSize  = copyAlign // of the block
)

// copiesSize is the size of copies.bin.
func copiesSize(lanes, copies int) int64 {
	return copiesHeader + 8*int64(lanes) + copiesRow*int64(copies) + copiesTrailer
}

// encode returns the bytes of copies.bin.
func (c *copyTable) encode(t *table, id [storeIDBytes]byte) []byte {
	out := make([]byte, copiesHeader, copiesSize(t.lanes, len(c.places)))
	copy(out, copiesMagic)
	for i, v := range []uint32{copiesVersion, copiesHeader, uint32(t.lanes), copiesRow} {
		binary.LittleEndian.PutUint32(out[8+4*i:], v)
	}
	binary.LittleEndian.PutUint64(out[24:], uint64(len(c.places)))
	copy(out[32:], id[:])
	binary.LittleEndian.PutUint32(out[60:], crc32.Checksum(out[:60], castagnoli))
	for _, size := range c.sizes {
		out = binary.LittleEndian.AppendUint64(out, uint64(size))
	}
	for row := range t.rows() {
		id := t.id(row)
		for _, place := range c.of(row) {
			for _, v := range []int32{id.Layer, id.Index, place.Piece, place.Lane} {
				out = binary.LittleEndian.AppendUint32(out, uint32(v))
			}
			out = binary.LittleEndian.AppendUint64(out, uint64(place.Offset))
			out = binary.LittleEndian.AppendUint64(out, uint64(t.piecesOf(row)[place.Piece].Bytes))
		}
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// decodeCopies reads copies.bin against its store. Path is for messages only.
// The error is an ErrVersion or a *CorruptError.
func decodeCopies(path string, data []byte, storeID string, t *table) (*copyTable, error) {
	n, err := checkCopiesHeader(path, data, storeID, t)
	if err != nil {
		return nil, err
	}
	end := len(data) - copiesTrailer
	if got, want := binary.LittleEndian.Uint32(data[end:]), crc32.Checksum(data[:end], castagnoli); got != want {
		return nil, corrupt(path, int64(end), "checksum is %08x, its content has %08x", got, want)
	}
	c := &copyTable{first: make([]int32, t.rows()+1), places: make([]copyPlace, n), sizes: make([]int64, t.lanes)}
	if err := c.decodeSizes(path, data[copiesHeader:]); err != nil {
		return nil, err
	}
	start := copiesHeader + 8*t.lanes
	if err := c.decodeRows(path, data[start:end], start, t); err != nil {
		return nil, err
	}
	if i, err := c.check(t); err != nil {
		return nil, corrupt(path, int64(start+copiesRow*i), "row %d: %v", i, err)
	}
	return c, nil
}

// checkCopiesHeader returns the number of rows, of which data has as many.
func checkCopiesHeader(path string, data []byte, storeID string, t *table) (int, error) {
	if len(data) < copiesHeader {
		return 0, corrupt(path, int64(len(data)), "has %d bytes, less than a header of %d", len(data), copiesHeader)
	}
	if err := checkCopyHead(path, data, copiesMagic); err != nil {
		return 0, err
	}
	for i, want := range []uint32{copiesHeader, uint32(t.lanes), copiesRow} {
		if got := binary.LittleEndian.Uint32(data[12+4*i:]); got != want {
			return 0, corrupt(path, int64(12+4*i), "header has %d, the store asks for %d", got, want)
		}
	}
	if got := hex.EncodeToString(data[32 : 32+storeIDBytes]); got != storeID {
		return 0, corrupt(path, 32, "belongs to store %s, not to %s", got, storeID)
	}
	if !allZero(data[48:60]) {
		return 0, corrupt(path, 48, "reserved bytes are not zero")
	}
	n := binary.LittleEndian.Uint64(data[24:])
	if most := uint64(t.countPieces()); n > most {
		return 0, corrupt(path, 24, "has %d copies, the store has %d pieces", n, most)
	}
	if want := copiesSize(t.lanes, int(n)); int64(len(data)) != want {
		return 0, corrupt(path, min(int64(len(data)), want), "has %d bytes, want %d", len(data), want)
	}
	return int(n), nil
}

// checkCopyHead checks magic, version and checksum of a header of 64 bytes.
func checkCopyHead(path string, data []byte, magic string) error {
	if string(data[:8]) != magic {
		return corrupt(path, 0, "starts with %q, want %q", data[:8], magic)
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v != copiesVersion {
		return fmt.Errorf("layout: %s: %w: version is %d, this program reads %d", path, ErrVersion, v, copiesVersion)
	}
	if got, want := binary.LittleEndian.Uint32(data[60:]), crc32.Checksum(data[:60], castagnoli); got != want {
		return corrupt(path, 60, "header's checksum is %08x, its content has %08x", got, want)
	}
	return nil
}

func (c *copyTable) decodeSizes(path string, data []byte) error {
	for i := range c.sizes {
		size := binary.LittleEndian.Uint64(data[8*i:])
		if size > MaxLaneBytes || size%laneAlign != 0 {
			return corrupt(path, int64(copiesHeader+8*i), "copies beside lane %d have size %d, want a multiple of %d up to %d", i, size, laneAlign, int64(MaxLaneBytes))
		}
		c.sizes[i] = int64(size)
	}
	return nil
}

// decodeRows fills the table from rows that start at byte start of the file and
// whose number is known to be right.
func (c *copyTable) decodeRows(path string, data []byte, start int, t *table) error {
	last := -1
	for i := range c.places {
		b, at := data[copiesRow*i:], int64(start+copiesRow*i)
		id := ExpertID{Layer: int32(binary.LittleEndian.Uint32(b)), Index: int32(binary.LittleEndian.Uint32(b[4:]))}
		piece, lane := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
		offset, bytes := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
		if !t.shape.Contains(id) || piece >= uint32(t.lanes) || lane >= uint32(t.lanes) || offset > MaxLaneBytes {
			return corrupt(path, at, "row %d: %v, lanes %d and %d or offset %d are beyond the store", i, id, piece, lane, offset)
		}
		row := int(t.rowOf[t.shape.Ordinal(id)])
		if row < last {
			return corrupt(path, at, "row %d: %v comes after a later one", i, id)
		}
		last = row
		if want := t.piecesOf(row)[piece].Bytes; bytes != uint64(want) {
			return corrupt(path, at+24, "row %d: a copy of %d bytes of a piece of %d", i, bytes, want)
		}
		c.places[i] = copyPlace{Offset: int64(offset), Piece: int32(piece), Lane: int32(lane)}
		c.first[row+1]++
	}
	c.sumFirst()
	return nil
}

// encodeCopyHeader is the block with which the file of copies beside a lane
// starts. Sum is the trailer of copies.bin, which tells apart the copies of two
// builds of the same store.
func encodeCopyHeader(lane int, size int64, id [storeIDBytes]byte, sum uint32) []byte {
	out := make([]byte, copyHeaderBytes)
	copy(out, copyMagic)
	for i, v := range []uint32{copiesVersion, copyHeaderSize, uint32(lane), sum} {
		binary.LittleEndian.PutUint32(out[8+4*i:], v)
	}
	binary.LittleEndian.PutUint64(out[24:], uint64(size))
	copy(out[32:], id[:])
	binary.LittleEndian.PutUint32(out[60:], crc32.Checksum(out[:60], castagnoli))
	return out
}

// checkCopyHeader compares a block's start with what it must be. Path is for
// messages only. The error is an ErrVersion or a *CorruptError.
func checkCopyHeader(path string, got, want []byte) error {
	if err := checkCopyHead(path, got, copyMagic); err != nil {
		return err
	}
	for i := range want {
		if got[i] != want[i] {
			return corrupt(path, int64(i), "it belongs to another lane, build or store")
		}
	}
	return nil
}
