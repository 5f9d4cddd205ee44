package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// copiesSpace is the size of the index of the copies.
func (b *builder) copiesSpace() int64 {
	if b.plan.copies == nil {
		return 0
	}
	return copiesSize(len(b.lanes), len(b.plan.copies.places))
}

func (b *builder) copyGaps() []gap {
	if b.plan.copies == nil {
		return nil
	}
	return b.plan.copies.gaps(&b.table)
}

// writeCopy writes a part of a piece, which starts at byte at of it, a second
// time if the piece has a copy.
func (b *builder) writeCopy(row, lane int, part []byte, at int64) error {
	for _, place := range b.plan.copies.of(row) {
		if int(place.Piece) == lane {
			return b.write(b.copies[place.Lane], part, place.Offset+at)
		}
	}
	return nil
}

// writeCopyHeaders writes the first bytes of the files of copies, and returns the
// index of the copies, with which these bytes tie the files together.
func (b *builder) writeCopyHeaders(id [storeIDBytes]byte) ([]byte, error) {
	if b.plan.copies == nil {
		return nil, nil
	}
	index := b.plan.copies.encode(&b.table, id)
	for i := range b.copies {
		lane := b.copies[i]
		if lane.temp == "" {
			continue
		}
		if err := b.write(lane, encodeCopyHeader(i, lane.size, id, trailerOf(index)), 0); err != nil {
			return nil, err
		}
	}
	return index, nil
}

// trailerOf is the checksum at the end of an index of copies.
func trailerOf(index []byte) uint32 {
	return binary.LittleEndian.Uint32(index[len(index)-copiesTrailer:])
}

// checkCopyHeaders reads back what writeCopyHeaders wrote.
func (b *builder) checkCopyHeaders(lanes []Lane, index []byte) error {
	if index == nil {
		return nil
	}
	id := [storeIDBytes]byte(index[32:])
	for i := range lanes {
		if lanes[i].Copies == nil {
			continue
		}
		if err := readCopyHeader(&lanes[i], encodeCopyHeader(i, b.copies[i].size, id, trailerOf(index))); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		b.meter.add(copyHeaderBytes)
	}
	return nil
}

// writeCopiesIndex writes the index of the copies, and decodes what it wrote.
func (b *builder) writeCopiesIndex(id [storeIDBytes]byte, index []byte) error {
	if index == nil {
		return nil
	}
	if err := b.writeFile(copiesName, index); err != nil {
		return err
	}
	if err := b.sameFile(copiesName, index); err != nil {
		return err
	}
	c, err := decodeCopies(copiesName, index, hex.EncodeToString(id[:]), &b.table)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !bytes.Equal(c.encode(&b.table, id), index) {
		return corrupt(copiesName, 0, "read back: it decodes to something else")
	}
	return nil
}
