package layout

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// What the external tests and fuzz targets need of the decoders.

// DecodeManifest decodes the bytes of a manifest.json.
func DecodeManifest(data []byte) (*Manifest, error) { return decodeManifest("manifest.json", data) }

// Encode returns the bytes of a manifest with a fresh checksum.
func (m *Manifest) Encode() ([]byte, error) { return m.encode() }

// SealManifest returns changed manifest bytes with the end and the checksum of
// a whole one.
func SealManifest(data []byte) []byte {
	data = bytes.TrimRight(data, "\n} \t\r")
	if at := bytes.LastIndex(data, []byte(`"manifest_crc32c"`)); at >= 0 {
		data = data[:at]
	}
	data = append(bytes.Clone(data), `"manifest_crc32c": "`...)
	return append(append(data, hexSum(crc32.Checksum(data, castagnoli))...), manifestTail...)
}

// DecodeIndex decodes the bytes of an index.bin.
func DecodeIndex(data []byte, m *Manifest) error {
	_, err := decodeIndex("index.bin", data, m)
	return err
}

// SealIndex gives changed index bytes right checksums, in the manifest too.
func SealIndex(data []byte, m *Manifest) {
	if len(data) < indexHeaderSize+indexTrailer {
		return
	}
	binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], castagnoli))
	end := len(data) - indexTrailer
	sum := crc32.Checksum(data[:end], castagnoli)
	binary.LittleEndian.PutUint32(data[end:], sum)
	m.Index = ManifestIndex{Size: int64(len(data)), Sum: hexSum(sum)}
}

// DecodeRouters decodes the bytes of a router.safetensors of the store.
func DecodeRouters(data []byte, store string, shape Shape) (*CheckpointRouters, error) {
	head, err := readRouterHeader(bytesFile{data}, "router.safetensors")
	if err != nil {
		return nil, err
	}
	return decodeRouterHeader("router.safetensors", head, int64(len(data)-lengthBytes-len(head)), store, shape)
}

// bytesFile is a file in memory.
type bytesFile struct{ data []byte }

func (f bytesFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.data).ReadAt(p, off)
}
func (f bytesFile) Size() int64       { return int64(len(f.data)) }
func (f bytesFile) Direct() Alignment { return Alignment{} }
func (f bytesFile) Close() error      { return nil }

// SealRouters gives changed router header bytes a right length and checksum. The
// header must still end as it did.
func SealRouters(head []byte) []byte {
	at := bytes.LastIndex(head, []byte(routerTail)) - sumDigits
	if at < 0 {
		return head
	}
	sealed := append(bytes.Clone(head[:at]), hexSum(crc32.Checksum(head[:at], castagnoli))...)
	return append(sealed, head[at+sumDigits:]...)
}

// HalfToFloat widens a half-precision number.
func HalfToFloat(h uint16) float32 { return halfToFloat(h) }

// DecodeCopies decodes the bytes of a copies.bin of the store, and returns what
// they encode to again.
func (s *Store) DecodeCopies(data []byte) ([]byte, error) {
	c, err := decodeCopies(copiesName, data, s.manifest.ID, s.table)
	if err != nil {
		return nil, err
	}
	return c.encode(s.table, [storeIDBytes]byte(data[32:])), nil
}

// SealCopies gives changed bytes of a copies.bin right checksums.
func SealCopies(data []byte) {
	if len(data) < copiesHeader+copiesTrailer {
		return
	}
	binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], castagnoli))
	end := len(data) - copiesTrailer
	binary.LittleEndian.PutUint32(data[end:], crc32.Checksum(data[:end], castagnoli))
}

// SealCopyHeader gives the changed start of a file of copies its right checksum.
func SealCopyHeader(data []byte) {
	binary.LittleEndian.PutUint32(data[60:], crc32.Checksum(data[:60], castagnoli))
}

// DecodeJournal decodes the bytes of a building.journal of a plan's build, and returns
// the rows it names, their checksums, and where its last whole batch ends.
func (p *Plan) DecodeJournal(data []byte, stamp [32]byte) (rows []int, sums []uint32, end int64) {
	t := p.table
	t.sums = make([]uint32, t.rows()*t.width)
	rows, end = t.decodeJournal(data, stamp)
	return rows, t.sums, end
}

// EncodeJournal returns the bytes of a journal with one batch for each list of rows,
// whose checksums are the row's number.
func (p *Plan) EncodeJournal(stamp [32]byte, batches ...[]int) []byte {
	file := &journalBytes{}
	j := &journal{width: p.table.width, step: 1 << 60, file: file}
	if err := j.write(journalHead(stamp, j.width)); err != nil {
		panic(err)
	}
	for _, rows := range batches {
		for _, row := range rows {
			sums := make([]uint32, j.width)
			for i := range sums {
				sums[i] = uint32(row)
			}
			if err := j.add(row, sums, 1); err != nil {
				panic(err)
			}
		}
		if err := j.flush(); err != nil {
			panic(err)
		}
	}
	return file.data
}

// journalBytes is a file in memory that is only added to.
type journalBytes struct {
	WriteFile
	data []byte
}

func (f *journalBytes) WriteAt(p []byte, _ int64) (int, error) {
	f.data = append(f.data, p...)
	return len(p), nil
}
