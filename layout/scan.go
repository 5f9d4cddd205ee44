package layout

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
)

// segment is a stretch of a record: part of a projection, or padding.
type segment struct {
	start, end int64
	projection int // -1: padding
}

// segments lists what a record of this form consists of, without gaps.
func (f *Form) segments() []segment {
	var out []segment
	var end int64
	for i := range f.Projections {
		p := &f.Projections[i]
		if p.Offset > end {
			out = append(out, segment{end, p.Offset, -1})
		}
		end = p.Offset + p.Bytes
		out = append(out, segment{p.Offset, end, i})
	}
	if end < f.Bytes {
		out = append(out, segment{end, f.Bytes, -1})
	}
	return out
}

// overlap cuts the part of data, which starts at off of the record, that
// belongs to the segment. At is where that part starts in the segment.
func (s segment) overlap(data []byte, off int64) (part []byte, at int64) {
	start, end := max(s.start, off), min(s.end, off+int64(len(data)))
	if start >= end {
		return nil, 0
	}
	return data[start-off : end-off], start - s.start
}

// Damage is one finding of Verify.
type Damage struct {
	ID         ExpertID // {-1, -1}: between the records
	Projection string   // empty: padding, or the whole record
	Lane       string   // path of the lane
	Offset     int64    // in the lane, where the projection or the finding starts
	Reason     string
}

// String says all of it in one line.
func (d Damage) String() string {
	if d.ID.Layer < 0 {
		return fmt.Sprintf("byte %d of %s: %s", d.Offset, d.Lane, d.Reason)
	}
	what := d.Projection
	if what == "" {
		what = "record"
	}
	return fmt.Sprintf("%v, %s at byte %d of %s: %s", d.ID, what, d.Offset, d.Lane, d.Reason)
}

// scanner checks the records of lanes against a table with checksums, and
// against the checkpoint if there is one. It is shared by the workers.
type scanner struct {
	table    *table
	segments [][]segment // of each form
	lanes    []Lane
	aligns   []int64
	sizes    []int64
	source   *spanReader // nil: checksums are all there is
	chunk    int64
	meter    *meter
}

func newScanner(t *table, lanes []Lane, sizes []int64, chunk int64, m *meter) *scanner {
	s := &scanner{table: t, lanes: lanes, sizes: sizes, chunk: chunk, meter: m, segments: segmentsOf(t.forms)}
	for _, lane := range lanes {
		s.aligns = append(s.aligns, lane.File.Direct().span())
	}
	return s
}

func segmentsOf(forms []Form) [][]segment {
	out := make([][]segment, len(forms))
	for i := range forms {
		out[i] = forms[i].segments()
	}
	return out
}

// scanBuffers belong to one worker.
type scanBuffers struct {
	lane, source []byte
	sums         []uint32
	differs      []bool
}

func (s *scanner) buffers() *scanBuffers {
	align := int64(placementAlign)
	for _, a := range s.aligns {
		align = max(align, a)
	}
	b := &scanBuffers{lane: alignedBuffer(s.chunk+2*align, align), sums: make([]uint32, s.table.width), differs: make([]bool, s.table.width)}
	if s.source != nil {
		b.source = make([]byte, s.chunk)
	}
	return b
}

// read returns a range of a lane, read in multiples of the lane's alignment.
func (s *scanner) read(b *scanBuffers, lane int, off, n int64) ([]byte, error) {
	w := newWindow(off, n, s.aligns[lane])
	got, err := s.lanes[lane].File.ReadAt(b.lane[:w.bytes], w.offset)
	if int64(got) < w.skip+n {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%d of %d bytes at %d: %w", got, w.bytes, w.offset, err)
	}
	return b.lane[w.skip : w.skip+n], nil
}

// record checks one record and returns what is wrong with it. The error is the
// context's, or one of the checkpoint's.
func (s *scanner) record(ctx context.Context, b *scanBuffers, row int) ([]Damage, error) {
	clear(b.sums)
	clear(b.differs)
	var found []Damage
	var base int64
	for lane, p := range s.table.piecesOf(row) {
		for at := int64(0); at < p.Bytes; at += s.chunk {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := min(s.chunk, p.Bytes-at)
			data, err := s.read(b, lane, p.Offset+at, n)
			if err != nil {
				return append(found, s.damage(row, "", base+at, fmt.Sprintf("read: %v", err))), nil
			}
			padding, err := s.feed(b, row, base+at, data)
			if err != nil {
				return nil, err
			}
			found = append(found, padding...)
			s.meter.add(n)
		}
		base += p.Bytes
	}
	return append(found, s.judge(b, row)...), nil
}

// feed takes the next bytes of a record, which start at off of it.
func (s *scanner) feed(b *scanBuffers, row int, off int64, data []byte) ([]Damage, error) {
	var found []Damage
	for _, seg := range s.segments[s.table.layers[row/s.table.shape.Experts]] {
		part, at := seg.overlap(data, off)
		if part == nil {
			continue
		}
		if seg.projection < 0 {
			if !allZero(part) {
				found = append(found, s.damage(row, "", seg.start+at, "padding is not zero"))
			}
			continue
		}
		b.sums[seg.projection] = crc32.Update(b.sums[seg.projection], castagnoli, part)
		if s.source == nil {
			continue
		}
		want := b.source[:len(part)]
		if err := s.source.read(s.table.id(row), seg.projection, at, want); err != nil {
			return nil, err
		}
		if !bytes.Equal(part, want) {
			b.differs[seg.projection] = true
		}
	}
	return found, nil
}

// judge compares the checksums of a record that has been read to its end.
func (s *scanner) judge(b *scanBuffers, row int) []Damage {
	var found []Damage
	form := s.table.form(row)
	for i := range form.Projections {
		p := &form.Projections[i]
		switch want := s.table.sumsOf(row)[i]; {
		case b.sums[i] != want:
			found = append(found, s.damage(row, p.Name, p.Offset, fmt.Sprintf("checksum is %08x, the index says %08x", b.sums[i], want)))
		case b.differs[i]:
			found = append(found, s.damage(row, p.Name, p.Offset, "bytes differ from the checkpoint"))
		}
	}
	return found
}

// damage places a finding at off of a record in its lane.
func (s *scanner) damage(row int, projection string, off int64, reason string) Damage {
	d := Damage{ID: s.table.id(row), Projection: projection, Reason: reason}
	for lane, p := range s.table.piecesOf(row) {
		if off < p.Bytes {
			d.Lane, d.Offset = s.lanes[lane].Path, p.Offset+off
			break
		}
		off -= p.Bytes
	}
	return d
}

// gap checks that a range between records is zero. The error is the context's.
func (s *scanner) gap(ctx context.Context, b *scanBuffers, g gap) ([]Damage, error) {
	for at := int64(0); at < g.bytes; at += s.chunk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(s.chunk, g.bytes-at)
		data, err := s.read(b, g.lane, g.offset+at, n)
		d := Damage{ID: ExpertID{Layer: -1, Index: -1}, Lane: s.lanes[g.lane].Path, Offset: g.offset + at, Reason: "padding between records is not zero"}
		if err != nil {
			d.Reason = fmt.Sprintf("read: %v", err)
			return []Damage{d}, nil
		}
		if !allZero(data) {
			return []Damage{d}, nil
		}
		s.meter.add(n)
	}
	return nil, nil
}
