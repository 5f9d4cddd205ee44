package prefetcher

import (
	"errors"
	"fmt"
	"io"
	"time"

	"outrider/layout"
)

// op is one request to a lane's file: a block, or several that are neighbours. Workers
// use theirs again.
type op struct {
	lane     *lane
	spot           // of the first block
	end      int64 // of the last one in the file
	bytes    int64
	blocks   []*block
	errs     []error // of the blocks, after the read
	need     int64   // bytes that must arrive
	failed   error   // of the request, while the second try waits for a worker
	urgent   bool
	summed   bool // a checksum is to be compared
	first    bool // it found the lane idle
	began    time.Time
	expected time.Duration // 0: not known
	due      time.Time     // when the watcher looks at it
	stuck    bool          // it does not count for the lane's rate any more

	bufs  [][]byte
	waste []byte // where gaps between neighbours go
}

// reset makes the op one of a single block.
func (o *op) reset(l *lane, b *block, urgent bool, now time.Time) {
	clear(o.blocks[:cap(o.blocks)])
	clear(o.errs[:cap(o.errs)])
	*o = op{
		lane: l, spot: b.spot, end: b.offset + b.bytes, bytes: b.bytes, urgent: urgent, began: now,
		blocks: append(o.blocks[:0], b), errs: o.errs[:0], bufs: o.bufs[:0], waste: o.waste,
	}
}

// follows reports whether a block goes on where the op ends, up to a gap that is
// small beside what is read, and the two are not more than one request should be.
func (o *op) follows(b *block, most, gap int64) bool {
	last := o.blocks[len(o.blocks)-1]
	return b.lane == o.spot.lane && b.copies == o.copies && b.state == blockWaiting &&
		b.offset >= o.end && b.offset-o.end <= min(gap, o.bytes/gapShare) && b.offset+b.bytes-o.offset <= most &&
		last.need == last.bytes && 2*len(o.blocks)+2 <= layout.MaxVector
}

// gapShare bounds what is read for nothing: an eighth.
const gapShare = 8

func (o *op) add(b *block) {
	o.blocks = append(o.blocks, b)
	o.bytes += b.bytes + b.offset - o.end
	o.end = b.offset + b.bytes
}

// reads reports whether the op reads a block of the flight.
func (o *op) reads(f *flight) bool {
	for _, b := range o.blocks {
		if b.doomed == nil && b.f == f {
			return true
		}
	}
	return false
}

// prepare sets what the request reads into, with a canary in each block.
func (p *Prefetcher) prepare(o *op) {
	o.bufs, o.need = o.bufs[:0], 0
	at := o.offset
	for _, b := range o.blocks {
		if gap := b.offset - at; gap > 0 {
			o.waste = grown(o.waste, gap)
			o.bufs = append(o.bufs, o.waste[:gap])
			o.need += gap
		}
		buf := b.buf
		p.canary.set(buf[:b.need])
		at = b.offset + b.bytes
		o.need += b.need
		if n := len(o.bufs); n > 0 && adjoin(o.bufs[n-1], buf) {
			o.bufs[n-1] = o.bufs[n-1][:len(o.bufs[n-1])+len(buf)]
			continue
		}
		o.bufs = append(o.bufs, buf)
	}
}

// judge tells whether the request brought what it had to.
func (p *Prefetcher) judge(o *op, n int, err error) error {
	p.blockTimes.add(time.Since(o.began))
	if err := arrived(n, err, o.need); err != nil {
		return err
	}
	for _, b := range o.blocks {
		if buf := b.buf[:b.need]; len(buf) >= 2*canaryBytes && p.canary.alive(buf) {
			return ErrSilent
		}
	}
	return nil
}

// tryAgain sets the errors of the op's blocks. Where the request failed, each is read
// by itself: a single one for the second time, neighbours twice if they must.
func (p *Prefetcher) tryAgain(o *op, err error) {
	if err == nil {
		p.count.merged.Add(int64(len(o.blocks) - 1))
	}
	for _, b := range o.blocks {
		var e error
		switch {
		case err == nil:
		case len(o.blocks) > 1:
			e = p.fetchBlock(b)
		case p.noteFailure(b.lane, b):
			e = errDoomed
		default:
			e = p.secondTry(b, err)
		}
		o.errs = append(o.errs, e)
	}
}

// fetchBlock reads one block, a second time if the first fails.
func (p *Prefetcher) fetchBlock(b *block) error {
	first := p.tryBlock(b, b.spot, p.canary)
	if first == nil || errors.Is(first, errDoomed) {
		return first
	}
	return p.secondTry(b, first)
}

// secondTry reads a block again, from its other place if it has one. The error names
// the file, the place and the expert.
func (p *Prefetcher) secondTry(b *block, first error) error {
	p.count.retries.Add(1)
	s := b.spot
	if b.twice {
		s = b.other
	}
	err := p.tryBlock(b, s, p.canary.inverse())
	if err == nil || errors.Is(err, errDoomed) {
		return err
	}
	_, path := p.lanes[s.lane].file(s)
	e := &ReadError{Path: path, Offset: s.offset, Bytes: b.bytes, ID: b.id, Err: err}
	if b.twice {
		_, e.First = p.lanes[b.lane].file(b.spot)
		e.FirstErr = first
	}
	return e
}

func (p *Prefetcher) tryBlock(b *block, s spot, c canary) error {
	file, _ := p.lanes[s.lane].file(s)
	buf := b.buf
	watch := c.set(buf[:b.need])
	start := time.Now()
	n, err := readAt(file, buf, s.offset)
	p.blockTimes.add(time.Since(start))
	err = arrived(n, err, b.need)
	if err == nil && watch && c.alive(buf[:b.need]) {
		err = ErrSilent
	}
	if err != nil && p.noteFailure(s.lane, b) {
		return errDoomed
	}
	return err
}

// errDoomed is the error of a failed block that nobody waits for any more.
var errDoomed = errors.New("prefetcher: nobody waits for the block")

// noteFailure makes the lane look slow, so that what lies twice is read elsewhere,
// and reports whether the block is doomed: its buffer is not to be read into again.
func (p *Prefetcher) noteFailure(lane int, b *block) (doomed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lanes[lane].failures++
	p.lanes[lane].rate.failed()
	return b.doomed != nil
}

// arrived is the error of a read that had to bring need bytes.
func arrived(n int, err error, need int64) error {
	switch {
	case int64(n) < need:
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %d of %d bytes", ErrShort, n, need)
		}
		return err
	case err != nil && !errors.Is(err, io.EOF):
		return err
	}
	return nil
}

// safely turns a panic of a file or reader into an error: in a worker it would end the
// process.
func safely(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrPanic, r)
		}
	}()
	f()
	return nil
}

// readAt is the file's, panics being errors.
func readAt(file layout.File, buf []byte, off int64) (n int, err error) {
	if panicked := safely(func() { n, err = file.ReadAt(buf, off) }); panicked != nil {
		return 0, panicked
	}
	return n, err
}

// readVAt is readAt into several buffers. Where the file can't, that is an error.
func readVAt(file layout.File, bufs [][]byte, off int64) (n int, err error) {
	if len(bufs) == 1 {
		return readAt(file, bufs[0], off)
	}
	v, ok := file.(layout.VectorFile)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	if panicked := safely(func() { n, err = v.ReadVAt(bufs, off) }); panicked != nil {
		return 0, panicked
	}
	return n, err
}
