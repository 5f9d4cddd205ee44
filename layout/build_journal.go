package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"sync"
)

// building.journal notes which records of an unfinished build are written, with
// their checksums, in batches. All numbers are little-endian:
//
//	header, 64 bytes
//	   0  magic "OUTRJNL\n"
//	   8  u32 version, 1
//	  12  u32 P, checksums of a row
//	  16  32 bytes, the SHA-256 of building.json
//	  48  zero, 12 bytes
//	  60  u32 sum of bytes 0 to 59
//	batches
//	   0  u32 n
//	   4  n × (u32 row, P × u32 sum of a projection)
//	   …  u32 sum of the batch before it
//
// It is a hint, and never synced: a batch that is torn ends it, and a record that
// it names counts only if its checksums hold on the device.
const (
	journalName    = "building.journal"
	journalMagic   = "OUTRJNL\n"
	journalVersion = 1
	journalHeader  = 64
)

// A batch is written after so many bytes of records: often enough to lose little
// work, seldom enough to cost nothing.
const (
	journalStep  = 64 << 20
	journalParts = 128 // of a small store
)

// journal is safe for concurrent use, but for close. The lock is not held while a
// batch is written: each batch has its place, and one that comes to lie behind a
// missing one is only lost to a reader.
type journal struct {
	width int
	step  int64
	file  WriteFile // nil after close

	mu    sync.Mutex
	at    int64 // where the next batch goes
	batch []byte
	rows  uint32 // in batch
	bytes int64  // of records in batch
	// written counts the bytes of all batches of this run, and of the header.
	written int64
}

// journalSpace is what the journal takes at most.
func (b *builder) journalSpace() int64 {
	batches := min(int64(b.table.rows()), max(journalParts, b.plan.Bytes()/journalStep)+1)
	return journalHeader + int64(b.table.rows())*int64(4+4*b.table.width) + 8*batches
}

func journalHead(stamp [32]byte, width int) []byte {
	head := make([]byte, journalHeader)
	copy(head, journalMagic)
	binary.LittleEndian.PutUint32(head[8:], journalVersion)
	binary.LittleEndian.PutUint32(head[12:], uint32(width))
	copy(head[16:], stamp[:])
	binary.LittleEndian.PutUint32(head[60:], crc32.Checksum(head[:60], castagnoli))
	return head
}

// startJournal begins a journal, or goes on with the one of an unfinished build
// behind its last whole batch, of which at is the end; 0 means that there is none.
func (b *builder) startJournal(at int64) (err error) {
	j := &journal{width: b.table.width, step: min(journalStep, b.plan.Bytes()/journalParts), at: at}
	b.journal = j
	path := filepath.Join(b.temp, journalName)
	if at > 0 {
		j.file, err = b.fs.(ResumeFS).OpenWrite(path)
		return err
	}
	if err := b.fs.RemoveAll(path); err != nil {
		return err
	}
	if j.file, err = b.fs.Create(path); err != nil {
		return err
	}
	return j.write(journalHead(b.stamp, j.width))
}

// add notes a record that is written, and with it those before when enough have
// come together.
func (j *journal) add(row int, sums []uint32, bytes int64) error {
	j.mu.Lock()
	if j.rows == 0 {
		j.batch = append(make([]byte, 0, 4096), 0, 0, 0, 0)
	}
	j.batch = binary.LittleEndian.AppendUint32(j.batch, uint32(row))
	for _, sum := range sums {
		j.batch = binary.LittleEndian.AppendUint32(j.batch, sum)
	}
	j.rows++
	j.bytes += bytes
	full := j.bytes >= j.step
	j.mu.Unlock()
	if !full {
		return nil
	}
	return j.flush()
}

// flush writes the batch, if there is one.
func (j *journal) flush() error {
	j.mu.Lock()
	batch, rows := j.batch, j.rows
	j.batch, j.rows, j.bytes = nil, 0, 0
	j.mu.Unlock()
	if rows == 0 {
		return nil
	}
	binary.LittleEndian.PutUint32(batch, rows)
	return j.write(binary.LittleEndian.AppendUint32(batch, crc32.Checksum(batch, castagnoli)))
}

// write puts p behind what has been written before.
func (j *journal) write(p []byte) error {
	j.mu.Lock()
	at := j.at
	j.at += int64(len(p))
	j.written += int64(len(p))
	j.mu.Unlock()
	n, err := j.file.WriteAt(p, at)
	if err == nil && n != len(p) {
		err = errors.New("short write")
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", journalName, err)
	}
	return nil
}

// close writes what is left and closes the file; a second call does nothing. Nobody
// may be adding.
func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := errors.Join(j.flush(), j.file.Close())
	j.file = nil
	return err
}

// readJournal puts the checksums of all records that the journal names into the
// table. It returns the rows, and where the last whole batch ends; 0 where there is
// no journal of this build.
func (b *builder) readJournal() (rows []int, end int64, err error) {
	path := filepath.Join(b.temp, journalName)
	f, err := b.fs.Open(path, Buffered)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	} else if err != nil {
		return nil, 0, err
	}
	// Each resume may note every record once more; beyond that it is not ours.
	size := min(f.Size(), 16*b.journalSpace())
	data := make([]byte, size)
	if err := errors.Join(readFull(f, data, 0), f.Close()); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", path, err)
	}
	rows, end = b.table.decodeJournal(data, b.stamp)
	return rows, end, nil
}

// decodeJournal reads whole batches up to the first that is torn or damaged.
func (t *table) decodeJournal(data []byte, stamp [32]byte) (rows []int, end int64) {
	if len(data) < journalHeader || string(data[:journalHeader]) != string(journalHead(stamp, t.width)) {
		return nil, 0
	}
	known := make([]bool, t.rows())
	entry := 4 + 4*t.width
	at := journalHeader
	for len(data)-at >= 8 {
		n := int64(binary.LittleEndian.Uint32(data[at:]))
		if n < 1 || n > int64(t.rows()) || n*int64(entry)+8 > int64(len(data)-at) {
			break
		}
		last := at + 4 + int(n)*entry
		if crc32.Checksum(data[at:last], castagnoli) != binary.LittleEndian.Uint32(data[last:]) {
			break
		}
		for e := data[at+4 : last]; len(e) > 0; e = e[entry:] {
			row := int(binary.LittleEndian.Uint32(e))
			if row >= t.rows() {
				return rows, int64(at)
			}
			for i := range t.sumsOf(row) {
				t.sumsOf(row)[i] = binary.LittleEndian.Uint32(e[4+4*i:])
			}
			if !known[row] {
				known[row] = true
				rows = append(rows, row)
			}
		}
		at = last + 4
	}
	return rows, int64(at)
}
