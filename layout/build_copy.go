package layout

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
)

// create makes the temporary folder with its marker, and the lanes.
func (b *builder) create() error {
	if err := b.fs.Mkdir(b.temp); err != nil {
		return err
	}
	b.made = append(b.made, b.temp)
	if err := b.writeMarker(); err != nil {
		return err
	}
	for _, lane := range b.files() {
		f, err := b.fs.Create(lane.temp)
		if err != nil {
			return err
		}
		lane.file = f
		if lane.target != "" {
			b.made = append(b.made, lane.temp)
		}
	}
	return nil
}

// closeLanes closes what is open; a second call finds nothing to do.
func (b *builder) closeLanes() error {
	var errs []error
	for _, lane := range b.files() {
		if lane.file != nil {
			errs = append(errs, lane.file.Close())
			lane.file = nil
		}
	}
	return errors.Join(errs...)
}

// writeFiles writes the lanes and the copies, and syncs. It returns the id of the
// store, and the bytes of the index of the copies, nil if there are none.
func (b *builder) writeFiles(ctx context.Context) (id [storeIDBytes]byte, copies []byte, err error) {
	if err := b.writeRecords(ctx); err != nil {
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
		if err := lane.file.Sync(); err != nil {
			return id, nil, fmt.Errorf("sync %s: %w", lane.temp, err)
		}
	}
	return id, copies, nil
}

// writeRecords copies every record, and fills what no record covers with zeros.
func (b *builder) writeRecords(ctx context.Context) error {
	chunk := chunkFor(b.workers)
	segments := segmentsOf(b.table.forms)
	start := func() *copier { return &copier{b: b, segments: segments, buf: make([]byte, chunk)} }
	err := eachRow(ctx, b.workers, b.table.rows(), start, func(ctx context.Context, c *copier, row int) error {
		return c.record(ctx, row)
	})
	if err != nil {
		return err
	}
	zeros := make([]byte, chunk)
	for _, g := range b.table.gaps(b.plan.laneSizes()) {
		if err := b.clear(&b.lanes[g.lane], g, zeros); err != nil {
			return err
		}
	}
	for _, g := range b.copyGaps() {
		if err := b.clear(&b.copies[g.lane], g, zeros); err != nil {
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
	n, err := lane.file.WriteAt(p, off)
	if err == nil && n != len(p) {
		err = errors.New("short write")
	}
	if err != nil {
		return fmt.Errorf("write %d bytes at %d of %s: %w", len(p), off, lane.temp, err)
	}
	b.meter.add(int64(n))
	return nil
}

// copier is the state of one worker.
type copier struct {
	b        *builder
	segments [][]segment
	buf      []byte
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
			if err := c.b.write(&c.b.lanes[lane], chunk, p.Offset+at); err != nil {
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

// readBack checks every byte that lies on the devices now, around the page
// cache where that works. copies is the index of the copies.
func (b *builder) readBack(ctx context.Context, copies []byte) (err error) {
	lanes := make([]Lane, 0, len(b.lanes))
	defer func() {
		for _, lane := range lanes {
			err = errors.Join(err, lane.close())
		}
	}()
	for i := range b.lanes {
		lane, err := b.openBack(i)
		lanes = append(lanes, lane)
		if err != nil {
			return err
		}
	}
	if err := b.checkCopyHeaders(lanes, copies); err != nil {
		return err
	}
	s := newScanner(&b.table, lanes, b.plan.laneSizes(), chunkFor(b.workers), &b.meter)
	s.copies = b.plan.copies
	return s.all(ctx, b.workers, func(found []Damage) error {
		d := found[0]
		return corrupt(d.Lane, d.Offset, "read back: %v %s: %s: check the device", d.ID, d.Projection, d.Reason)
	})
}

// openBack opens what was written of a lane. What it has opened it returns with
// the error too.
func (b *builder) openBack(i int) (lane Lane, err error) {
	if lane.Path, lane.File, err = b.openWritten(&b.lanes[i]); err != nil || b.copies[i].temp == "" {
		return lane, err
	}
	lane.CopiesPath, lane.Copies, err = b.openWritten(&b.copies[i])
	return lane, err
}

func (b *builder) openWritten(lane *buildLane) (string, File, error) {
	f, err := b.fs.Open(lane.temp, Direct)
	if err != nil {
		return lane.temp, nil, fmt.Errorf("read back: %w", err)
	}
	if f.Size() != lane.size {
		return lane.temp, f, corrupt(lane.temp, min(f.Size(), lane.size), "read back: it has %d bytes, %d were written", f.Size(), lane.size)
	}
	return lane.temp, f, nil
}
