package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// readFull fills p from off. The end of the file before that is an
// io.ErrUnexpectedEOF, and so is a short read that comes without an error.
func readFull(r io.ReaderAt, p []byte, off int64) error {
	n, err := r.ReadAt(p, off)
	switch {
	case n == len(p):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return fmt.Errorf("%d of %d bytes at %d: %w", n, len(p), off, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("%d of %d bytes at %d: %w", n, len(p), off, err)
}

// Marks that are laid into a buffer before a read, one at the start of each
// block and one at the end. A mark that is still there means either that the
// file holds just these bytes, or that the read did not deliver.
const (
	markA     = 0x9d5f_3a17_c642_e8b1
	markB     = ^uint64(markA) & (1<<64 - 1)
	markBlock = 512
)

// readTouched is readFull for sources that may report bytes they did not
// deliver: some network and user-space file systems do. Only a range that
// keeps both of two different marks counts as not delivered.
func readTouched(r io.ReaderAt, p []byte, off int64) error {
	for _, mark := range [2]uint64{markA, markB} {
		setMarks(p, mark)
		if err := readFull(r, p, off); err != nil {
			return err
		}
		if !hasMark(p, mark) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes at %d: %w", len(p), off, ErrSilentRead)
}

func setMarks(p []byte, mark uint64) {
	for i := 0; i+8 <= len(p); i += markBlock {
		binary.LittleEndian.PutUint64(p[i:], mark)
	}
	if len(p) >= 8 {
		binary.LittleEndian.PutUint64(p[len(p)-8:], mark)
		return
	}
	for i := range p {
		p[i] = byte(mark >> (8 * i))
	}
}

func hasMark(p []byte, mark uint64) bool {
	for i := 0; i+8 <= len(p); i += markBlock {
		if binary.LittleEndian.Uint64(p[i:]) == mark {
			return true
		}
	}
	if len(p) >= 8 {
		return binary.LittleEndian.Uint64(p[len(p)-8:]) == mark
	}
	for i := range p {
		if p[i] != byte(mark>>(8*i)) {
			return false
		}
	}
	return true
}

func allZero(p []byte) bool {
	for len(p) >= 8 {
		if binary.LittleEndian.Uint64(p) != 0 {
			return false
		}
		p = p[8:]
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
