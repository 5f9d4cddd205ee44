package layout

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
)

// index.bin: header, rows, trailer; all little-endian. doc.go has the picture.
const (
	indexMagic      = "OUTRIDX\n"
	indexHeaderSize = 64
	indexTrailer    = 4
	storeIDBytes    = 16
)

// rowSize is the size of an index row.
func rowSize(lanes, width int) int { return int(alignUp(int64(8+16*lanes+4*width), 8)) }

// indexSize is the size of the index of this table.
func (t *table) indexSize() int64 {
	return indexHeaderSize + int64(t.shape.Count())*int64(rowSize(t.lanes, t.width)) + indexTrailer
}

// encodeIndex returns the bytes of index.bin.
func (t *table) encodeIndex(id [storeIDBytes]byte) []byte {
	size := rowSize(t.lanes, t.width)
	out := make([]byte, indexHeaderSize, t.indexSize())
	copy(out, indexMagic)
	for i, v := range t.headerFields() {
		binary.LittleEndian.PutUint32(out[8+4*i:], v)
	}
	copy(out[36:], id[:])
	binary.LittleEndian.PutUint32(out[60:], crc32.Checksum(out[:60], castagnoli))
	for row := range t.rows() {
		start := len(out)
		id := t.id(row)
		out = binary.LittleEndian.AppendUint32(out, uint32(id.Layer))
		out = binary.LittleEndian.AppendUint32(out, uint32(id.Index))
		for _, p := range t.piecesOf(row) {
			out = binary.LittleEndian.AppendUint64(out, uint64(p.Offset))
			out = binary.LittleEndian.AppendUint64(out, uint64(p.Bytes))
		}
		for _, sum := range t.sumsOf(row) {
			out = binary.LittleEndian.AppendUint32(out, sum)
		}
		out = append(out, make([]byte, start+size-len(out))...)
	}
	return binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, castagnoli))
}

// headerFields are the seven numbers behind the magic, in file order.
func (t *table) headerFields() [7]uint32 {
	return [7]uint32{formatVersion, indexHeaderSize, uint32(t.shape.Layers), uint32(t.shape.Experts),
		uint32(t.lanes), uint32(t.width), uint32(rowSize(t.lanes, t.width))}
}

// decodeIndex reads index.bin against its manifest. Path is for messages only.
func decodeIndex(path string, data []byte, m *Manifest) (*table, error) {
	t := m.table()
	if err := checkIndexHeader(path, data, m, &t); err != nil {
		return nil, err
	}
	if want := t.indexSize(); int64(len(data)) != want || m.Index.Size != want {
		return nil, corrupt(path, min(int64(len(data)), want), "has %d bytes, want %d (manifest: %d)", len(data), want, m.Index.Size)
	}
	end := len(data) - indexTrailer
	got, want := binary.LittleEndian.Uint32(data[end:]), crc32.Checksum(data[:end], castagnoli)
	if got != want {
		return nil, corrupt(path, int64(end), "checksum is %08x, its content has %08x", got, want)
	}
	if hexSum(got) != m.Index.Sum {
		return nil, corrupt(path, int64(end), "checksum is %08x, the manifest says %s", got, m.Index.Sum)
	}
	return &t, t.decodeRows(path, data[indexHeaderSize:end], m.laneSizes())
}

func checkIndexHeader(path string, data []byte, m *Manifest, t *table) error {
	if len(data) < indexHeaderSize {
		return corrupt(path, int64(len(data)), "has %d bytes, less than a header of %d", len(data), indexHeaderSize)
	}
	if string(data[:8]) != indexMagic {
		return corrupt(path, 0, "starts with %q, want %q", data[:8], indexMagic)
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v != formatVersion {
		return fmt.Errorf("layout: %s: %w: version is %d, this program reads %d: use a newer one, or build the store again",
			path, ErrVersion, v, formatVersion)
	}
	if got, want := binary.LittleEndian.Uint32(data[60:]), crc32.Checksum(data[:60], castagnoli); got != want {
		return corrupt(path, 60, "header's checksum is %08x, its content has %08x", got, want)
	}
	for i, want := range t.headerFields() {
		if got := binary.LittleEndian.Uint32(data[8+4*i:]); got != want {
			return corrupt(path, int64(8+4*i), "header has %d, the manifest asks for %d", got, want)
		}
	}
	if got := hex.EncodeToString(data[36 : 36+storeIDBytes]); got != m.ID {
		return corrupt(path, 36, "belongs to store %s, the manifest to %s", got, m.ID)
	}
	if binary.LittleEndian.Uint64(data[52:]) != 0 {
		return corrupt(path, 52, "reserved bytes are not zero")
	}
	return nil
}

// decodeRows fills the table from rows whose length is known to be right.
func (t *table) decodeRows(path string, data []byte, sizes []int64) error {
	n, size := t.shape.Count(), rowSize(t.lanes, t.width)
	t.order = make([]int32, n)
	t.pieces = make([]piece, n*t.lanes)
	t.sums = make([]uint32, n*t.width)
	at := func(row int) int64 { return int64(indexHeaderSize + row*size) }
	for row := range n {
		b := data[row*size : (row+1)*size]
		layer, expert := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if int(layer) != row/t.shape.Experts || int(expert) >= t.shape.Experts {
			return corrupt(path, at(row), "row %d is for layer %d expert %d, want layer %d and an expert below %d",
				row, layer, expert, row/t.shape.Experts, t.shape.Experts)
		}
		t.order[row] = int32(expert)
		if !t.decodeRow(row, b[8:]) {
			return corrupt(path, at(row), "row %d holds numbers beyond any file, or bytes where zeros belong", row)
		}
	}
	if row, err := t.indexRows(); err != nil {
		return corrupt(path, at(row), "row %d: %v", row, err)
	}
	if row, err := t.checkPieces(sizes); err != nil {
		return corrupt(path, at(row), "row %d: %v", row, err)
	}
	return nil
}

// decodeRow reads the pieces and checksums of a row. It reports false if a
// number is too large or a byte that must be zero is not.
func (t *table) decodeRow(row int, b []byte) bool {
	pieces := t.piecesOf(row)
	for i := range pieces {
		offset, bytes := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		if offset > MaxLaneBytes || bytes > MaxRecordBytes {
			return false
		}
		pieces[i] = piece{Offset: int64(offset), Bytes: int64(bytes)}
		b = b[16:]
	}
	sums := t.sumsOf(row)
	used := len(t.form(row).Projections)
	for i := range sums {
		sums[i] = binary.LittleEndian.Uint32(b)
		if i >= used && sums[i] != 0 {
			return false
		}
		b = b[4:]
	}
	return allZero(b)
}
