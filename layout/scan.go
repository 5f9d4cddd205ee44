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
	Lane       string   // path of the lane, or of the copies beside it
	Offset     int64    // in that file, where the projection or the finding starts
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

// scanner checks the records of lanes, and their copies, against a table with
// checksums, and against the checkpoint if there is one. It is shared by the workers.
type scanner struct {
	table    *table
	segments [][]segment // of each form
	files    []scanFile  // the lanes, then the copies beside each
	sizes    []int64     // of the lanes
	copies   *copyTable  // nil: none
	source   *spanReader // nil: checksums are all there is
	checked  []bool      // rows that need no more checking; nil: none
	chunk    int64
	meter    *meter
}

// scanFile is a lane, or the copies beside one; no file: there are none.
type scanFile struct {
	path  string
	file  File
	align int64
}

func newScanner(t *table, lanes []Lane, sizes []int64, chunk int64, m *meter) *scanner {
	s := &scanner{table: t, files: make([]scanFile, 2*len(lanes)), sizes: sizes, chunk: chunk, meter: m, segments: segmentsOf(t.forms)}
	for i, lane := range lanes {
		s.files[i] = scanFile{lane.Path, lane.File, lane.File.Direct().span()}
		if lane.Copies != nil {
			s.files[len(lanes)+i] = scanFile{lane.CopiesPath, lane.Copies, lane.Copies.Direct().span()}
		}
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
	pieces       []stretch // of the record at hand
}

// stretch is where a piece of a record is read: from its lane, or from its copy.
type stretch struct {
	file          int
	offset, bytes int64
}

// align is the largest alignment that a file demands.
func (s *scanner) align() int64 {
	align := int64(placementAlign)
	for _, f := range s.files {
		align = max(align, f.align)
	}
	return align
}

// newMemory makes buffers for so many workers, one for each.
func (s *scanner) newMemory(workers int) *workMemory {
	return newWorkMemory(workers, s.chunk+2*s.align(), s.align())
}

// buffers takes a worker's buffer from memory. Where that is too small, since a file
// demands more than files usually do, it makes a larger one.
func (s *scanner) buffers(memory *workMemory) *scanBuffers {
	b := &scanBuffers{lane: memory.take(), sums: make([]uint32, s.table.width), differs: make([]bool, s.table.width)}
	if align := s.align(); int64(len(b.lane)) < s.chunk+2*align || !(Alignment{int(align), 1}).check(b.lane, 0) {
		b.lane = alignedBuffer(s.chunk+2*align, align)
	}
	if s.source != nil {
		b.source = make([]byte, s.chunk)
	}
	return b
}

// allDirect reports whether all files are read around the page cache still.
func (s *scanner) allDirect() bool {
	for _, f := range s.files {
		if f.file != nil && f.file.Size() > 0 && !IsDirect(f.file) {
			return false
		}
	}
	return true
}

// rowAndCopies checks a record and then its copies, if it has any.
func (s *scanner) rowAndCopies(ctx context.Context, b *scanBuffers, row int) ([]Damage, error) {
	found, err := s.record(ctx, b, row, false)
	if err != nil || len(found) > 0 || len(s.copies.of(row)) == 0 {
		return found, err
	}
	return s.record(ctx, b, row, true)
}

// read returns a range of a file, read in multiples of the file's alignment.
func (s *scanner) read(b *scanBuffers, file int, off, n int64) ([]byte, error) {
	f := &s.files[file]
	w := newWindow(off, n, f.align)
	got, err := f.file.ReadAt(b.lane[:w.bytes], w.offset)
	if int64(got) < w.skip+n {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("%d of %d bytes at %d: %w", got, w.bytes, w.offset, err)
	}
	return b.lane[w.skip : w.skip+n], nil
}

// find lists the pieces of a row, in the lanes or, where they are open, in the copies.
func (s *scanner) find(b *scanBuffers, row int, copies bool) {
	b.pieces = b.pieces[:0]
	for lane, p := range s.table.piecesOf(row) {
		if p.Bytes > 0 {
			b.pieces = append(b.pieces, stretch{lane, p.Offset, p.Bytes})
		}
	}
	if !copies {
		return
	}
	for i, place := range s.copies.of(row) {
		if file := s.table.lanes + int(place.Lane); s.files[file].file != nil {
			b.pieces[i].file, b.pieces[i].offset = file, place.Offset
		}
	}
}

// record checks one record, or its copies, and returns what is wrong with it. The
// error is the context's, or one of the checkpoint's.
func (s *scanner) record(ctx context.Context, b *scanBuffers, row int, copies bool) ([]Damage, error) {
	clear(b.sums)
	clear(b.differs)
	s.find(b, row, copies)
	source := s.source
	if copies {
		source = nil // the record itself has been compared
	}
	var found []Damage
	var base int64
	for _, p := range b.pieces {
		for at := int64(0); at < p.bytes; at += s.chunk {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			n := min(s.chunk, p.bytes-at)
			data, err := s.read(b, p.file, p.offset+at, n)
			if err != nil {
				return append(found, s.damage(b, row, "", base+at, fmt.Sprintf("read: %v", err))), nil
			}
			padding, err := s.feed(b, row, base+at, data, source)
			if err != nil {
				return nil, err
			}
			found = append(found, padding...)
			s.meter.add(n)
		}
		base += p.bytes
	}
	return append(found, s.judge(b, row)...), nil
}

// feed takes the next bytes of a record, which start at off of it.
func (s *scanner) feed(b *scanBuffers, row int, off int64, data []byte, source *spanReader) ([]Damage, error) {
	var found []Damage
	for _, seg := range s.segments[s.table.layers[row/s.table.shape.Experts]] {
		part, at := seg.overlap(data, off)
		if part == nil {
			continue
		}
		if seg.projection < 0 {
			if !allZero(part) {
				found = append(found, s.damage(b, row, "", seg.start+at, "padding is not zero"))
			}
			continue
		}
		b.sums[seg.projection] = crc32.Update(b.sums[seg.projection], castagnoli, part)
		if source == nil {
			continue
		}
		want := b.source[:len(part)]
		if err := source.read(s.table.id(row), seg.projection, at, want); err != nil {
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
			found = append(found, s.damage(b, row, p.Name, p.Offset, fmt.Sprintf("checksum is %08x, the index says %08x", b.sums[i], want)))
		case b.differs[i]:
			found = append(found, s.damage(b, row, p.Name, p.Offset, "bytes differ from the checkpoint"))
		}
	}
	return found
}

// damage places a finding at off of a record in the file it was read from.
func (s *scanner) damage(b *scanBuffers, row int, projection string, off int64, reason string) Damage {
	d := Damage{ID: s.table.id(row), Projection: projection, Reason: reason}
	for _, p := range b.pieces {
		if off < p.bytes {
			d.Lane, d.Offset = s.files[p.file].path, p.offset+off
			break
		}
		off -= p.bytes
	}
	return d
}

// gap checks that a range between records, or copies, is zero. The error is the
// context's.
func (s *scanner) gap(ctx context.Context, b *scanBuffers, g gap) ([]Damage, error) {
	for at := int64(0); at < g.bytes; at += s.chunk {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n := min(s.chunk, g.bytes-at)
		data, err := s.read(b, g.lane, g.offset+at, n)
		d := Damage{ID: ExpertID{Layer: -1, Index: -1}, Lane: s.files[g.lane].path, Offset: g.offset + at, Reason: "padding between records is not zero"}
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
