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
	for i := range b.lanes {
		lane := &b.lanes[i]
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
	for i := range b.lanes {
		if f := b.lanes[i].file; f != nil {
			errs = append(errs, f.Close())
			b.lanes[i].file = nil
		}
	}
	return errors.Join(errs...)
}

// writeLanes copies every record, fills what no record covers with zeros, and
// syncs.
func (b *builder) writeLanes(ctx context.Context) error {
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
		for at := int64(0); at < g.bytes; at += chunk {
			n := min(chunk, g.bytes-at)
			if err := b.write(g.lane, zeros[:n], g.offset+at); err != nil {
				return err
			}
		}
	}
	for _, lane := range b.lanes {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := lane.file.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", lane.temp, err)
		}
	}
	return nil
}

func (b *builder) write(lane int, p []byte, off int64) error {
	n, err := b.lanes[lane].file.WriteAt(p, off)
	if err == nil && n != len(p) {
		err = errors.New("short write")
	}
	if err != nil {
		return fmt.Errorf("write %d bytes at %d of %s: %w", len(p), off, b.lanes[lane].temp, err)
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
			if err := c.b.write(lane, chunk, p.Offset+at); err != nil {
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
// cache where that works.
func (b *builder) readBack(ctx context.Context) (err error) {
	var lanes []Lane
	defer func() {
		for _, lane := range lanes {
			err = errors.Join(err, lane.File.Close())
		}
	}()
	sizes := b.plan.laneSizes()
	for i, lane := range b.lanes {
		f, err := b.fs.Open(lane.temp, Direct)
		if err != nil {
			return fmt.Errorf("read back: %w", err)
		}
		lanes = append(lanes, Lane{Path: lane.temp, File: f})
		if f.Size() != sizes[i] {
			return corrupt(lane.temp, min(f.Size(), sizes[i]), "read back: lane has %d bytes, %d were written", f.Size(), sizes[i])
		}
	}
	s := newScanner(&b.table, lanes, sizes, chunkFor(b.workers), &b.meter)
	return s.all(ctx, b.workers, func(found []Damage) error {
		d := found[0]
		return corrupt(d.Lane, d.Offset, "read back: %v %s: %s: check the device", d.ID, d.Projection, d.Reason)
	})
}
