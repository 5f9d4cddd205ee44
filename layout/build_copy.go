package layout

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
)

// newMemory makes the buffers of the workers: each has one to write from and one to
// read back into.
func (b *builder) newMemory() *workMemory {
	return newWorkMemory(2*b.workers, b.chunk+2*copyWindow, placementAlign)
}

// create makes the temporary folder with its marker, and the lanes, or goes on with
// those that a killed build left.
func (b *builder) create() error {
	var end int64 // of the journal that is gone on with
	if b.left == nil {
		if err := b.fs.Mkdir(b.temp); err != nil {
			return err
		}
		b.made = append(b.made, b.temp)
		if err := b.writeMarker(); err != nil {
			return err
		}
	} else {
		var err error
		if b.left.rows, end, err = b.readJournal(); err != nil {
			return err
		}
	}
	for _, lane := range b.files() {
		if err := lane.open(b, b.left != nil); err != nil {
			return err
		}
	}
	return b.startJournal(end)
}

// writeFiles writes the lanes and the copies, and syncs. It returns the id of the
// store, and the bytes of the index of the copies, nil if there are none.
func (b *builder) writeFiles(ctx context.Context, memory *workMemory) (id [storeIDBytes]byte, copies []byte, err error) {
	if err := b.reuse(ctx, memory); err != nil {
		return id, nil, err
	}
	if err := b.writeRecords(ctx, memory); err != nil {
		return id, nil, err
	}
	if err := b.clearGaps(); err != nil {
		return id, nil, err
	}
	if id, err = b.storeID(); err != nil {
		return id, nil, err
	}
	if copies, err = b.writeCopyHeaders(id); err != nil {
		return id, nil, err
	}
	for _, lane := range b.files() {
		if err := ctx.Err(); err != nil {
			return id, nil, err
		}
		if err := lane.sync(); err != nil {
			return id, nil, err
		}
	}
	return id, copies, nil
}

// writeRecords copies every record that is not there already. Lanes that are written
// around the page cache are read back record by record, so that both directions of a
// device have work; the others when all is written.
func (b *builder) writeRecords(ctx context.Context, memory *workMemory) (err error) {
	var todo []int
	for row, checked := range b.checked {
		if !checked {
			todo = append(todo, row)
		}
	}
	var back *scanner
	if b.writesDirect() {
		lanes, openErr := b.openBack()
		defer func() { err = errors.Join(err, closeLanes(lanes)) }()
		if openErr != nil {
			return openErr
		}
		back = b.newScanner(lanes, &b.meter)
	}
	segments := segmentsOf(b.table.forms)
	memory.reset()
	start := func() *copier {
		c := &copier{b: b, segments: segments, buf: memory.take()[:b.chunk]}
		if back != nil {
			c.back, c.backBuffers = back, back.buffers(memory)
		}
		return c
	}
	err = eachRow(ctx, b.workers, len(todo), start, func(ctx context.Context, c *copier, i int) error {
		return c.store(ctx, todo[i])
	})
	if back == nil || err != nil {
		return err
	}
	if b.direct = back.allDirect() && b.writesDirect(); !b.direct {
		clear(b.checked) // a device fell back to its cache: read all back once it is synced
		b.meter.total += b.plan.Bytes() + b.plan.CopyBytes
	}
	return nil
}

// writesDirect reports whether everything is written around the page cache.
func (b *builder) writesDirect() bool {
	for _, lane := range b.files() {
		if lane.size > 0 && (lane.direct == nil || lane.fallen.Load()) {
			return false
		}
	}
	return true
}

// clearGaps fills what no record and no copy covers with zeros.
func (b *builder) clearGaps() error {
	zeros := alignedBuffer(1<<20, directWriteAlign)
	for _, g := range b.table.gaps(b.plan.laneSizes()) {
		if err := b.clear(b.lanes[g.lane], g, zeros); err != nil {
			return err
		}
	}
	for _, g := range b.copyGaps() {
		if err := b.clear(b.copies[g.lane], g, zeros); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) clear(lane *buildLane, g gap, zeros []byte) error {
	for at := int64(0); at < g.bytes; at += int64(len(zeros)) {
		if err := b.write(lane, zeros[:min(int64(len(zeros)), g.bytes-at)], g.offset+at); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) write(lane *buildLane, p []byte, off int64) error {
	if err := lane.write(p, off); err != nil {
		return err
	}
	b.meter.add(int64(len(p)))
	return nil
}

// copier is the state of one worker.
type copier struct {
	b           *builder
	segments    [][]segment
	buf         []byte
	back        *scanner // nil: what was written is read back later
	backBuffers *scanBuffers
}

// store copies a record and its copies, reads them back if that is to be done at
// once, and notes that they are there.
func (c *copier) store(ctx context.Context, row int) error {
	if err := c.record(ctx, row); err != nil {
		return err
	}
	t := &c.b.table
	if c.back != nil {
		found, err := c.back.rowAndCopies(ctx, c.backBuffers, row)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			return readBackError(found)
		}
		c.b.checked[row] = true
	}
	return c.b.journal.add(row, t.sumsOf(row), t.form(row).Bytes)
}

// record puts a record together chunk by chunk, and takes the checksums of its
// projections on the way: of the bytes as they came from the checkpoint, so
// that reading back proves the whole path.
func (c *copier) record(ctx context.Context, row int) error {
	t := &c.b.table
	var base int64
	for lane, p := range t.piecesOf(row) {
		for at := int64(0); at < p.Bytes; at += int64(len(c.buf)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			chunk := c.buf[:min(int64(len(c.buf)), p.Bytes-at)]
			if err := c.fill(row, base+at, chunk); err != nil {
				return err
			}
			if err := c.b.write(c.b.lanes[lane], chunk, p.Offset+at); err != nil {
				return fmt.Errorf("%v: %w", t.id(row), err)
			}
			if err := c.b.writeCopy(row, lane, chunk, at); err != nil {
				return fmt.Errorf("%v: %w", t.id(row), err)
			}
		}
		base += p.Bytes
	}
	return nil
}

// fill makes the bytes of a record from off on.
func (c *copier) fill(row int, off int64, chunk []byte) error {
	t := &c.b.table
	sums := t.sumsOf(row)
	for _, seg := range c.segments[t.layers[row/t.shape.Experts]] {
		part, at := seg.overlap(chunk, off)
		if part == nil {
			continue
		}
		if seg.projection < 0 {
			clear(part)
			continue
		}
		if err := c.b.source.read(t.id(row), seg.projection, at, part); err != nil {
			return err
		}
		sums[seg.projection] = crc32.Update(sums[seg.projection], castagnoli, part)
	}
	return nil
}
