package prefetcher

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"outrider/layout"
)

// canaryBytes is how much of each end of a block carries a canary before it is
// read. Some file systems report success without having touched the buffer; a
// checkpoint opened in place has no checksum that would tell. The canary costs 32
// bytes a block. It finds a read that did not reach the end or the beginning of
// its block, not a hole in the middle, which only checksums find.
const canaryBytes = 16

type canary [canaryBytes]byte

// inverse is for the second try, so that data that happen to equal the canary
// are not taken for a silent read twice.
func (c canary) inverse() canary {
	for i := range c {
		c[i] = ^c[i]
	}
	return c
}

// set writes the canary to both ends of b, and reports whether b is large enough
// to carry two.
func (c canary) set(b []byte) bool {
	if len(b) < 2*canaryBytes {
		return false
	}
	copy(b, c[:])
	copy(b[len(b)-canaryBytes:], c[:])
	return true
}

// alive reports whether either end still carries the canary.
func (c canary) alive(b []byte) bool {
	return bytes.Equal(b[:canaryBytes], c[:]) || bytes.Equal(b[len(b)-canaryBytes:], c[:])
}

// readBlock reads one block into the slot, a second time if the first fails. The
// error names the file, the place and the expert.
func (p *Prefetcher) readBlock(f *flight, b *block) error {
	lane := p.lanes[b.lane]
	buf := f.fill.Bytes()[b.at : b.at+b.bytes]
	err := p.tryBlock(lane.File, buf, b, p.canary)
	if err == nil {
		return nil
	}
	p.count.retries.Add(1)
	if err = p.tryBlock(lane.File, buf, b, p.canary.inverse()); err == nil {
		return nil
	}
	return &ReadError{Path: lane.Path, Offset: b.offset, Bytes: b.bytes, ID: f.id, Err: err}
}

func (p *Prefetcher) tryBlock(file layout.File, buf []byte, b *block, c canary) error {
	watch := c.set(buf[:b.need])
	start := time.Now()
	n, err := readAt(file, buf, b.offset)
	p.blockTimes.add(time.Since(start))
	switch {
	case int64(n) < b.need:
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d of %d bytes", ErrShort, n, b.need)
		}
		return err
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case watch && c.alive(buf[:b.need]):
		return ErrSilent
	}
	return nil
}

// readAt turns a panic of the file into an error: in a worker it would end the
// process.
func readAt(file layout.File, buf []byte, off int64) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = 0, fmt.Errorf("%w: %v", ErrPanic, r)
		}
	}()
	return file.ReadAt(buf, off)
}

// locate asks the source where the expert lies, and checks the answer.
func (p *Prefetcher) locate(f *flight) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("prefetcher: locate %v: %w: %v", f.id, ErrPanic, r)
		}
	}()
	if err := p.opt.Source.Locate(f.id, &f.place); err != nil {
		return fmt.Errorf("prefetcher: locate %v: %w", f.id, err)
	}
	if err := checkPlacement(&f.place, p.slotBytes[f.id.Layer], len(p.lanes)); err != nil {
		return fmt.Errorf("prefetcher: locate %v: %w", f.id, err)
	}
	return nil
}

// verify compares the checksums of the parts that have one.
func (p *Prefetcher) verify(f *flight) error {
	slot := f.fill.Bytes()
	for i, part := range f.place.Parts {
		if !part.Summed {
			continue
		}
		got := crc32.Checksum(slot[part.At:part.At+part.Bytes], p.crcTable)
		if got != part.Sum {
			p.count.checksumErrors.Add(1)
			return p.checksumError(f, i, got)
		}
	}
	return nil
}

// checksumError names the place at which part i starts.
func (p *Prefetcher) checksumError(f *flight, i int, got uint32) error {
	part := f.place.Parts[i]
	e := &ChecksumError{ID: f.id, Projection: fmt.Sprintf("#%d", i), Got: got, Want: part.Sum}
	if record := p.opt.Source.Record(int(f.id.Layer)); i < len(record) {
		e.Projection = record[i].Name
	}
	for _, r := range f.place.Reads {
		if part.At >= r.At && part.At < r.At+r.Bytes {
			e.Path, e.Offset = p.lanes[r.Lane].Path, r.Offset+part.At-r.At
		}
	}
	return e
}
