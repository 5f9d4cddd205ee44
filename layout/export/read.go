package export

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"outrider/layout"
)

// Bounds of the memory that reading ahead uses.
const (
	maxParallel   = 32
	defaultReads  = 4
	chunkBytes    = 1 << 20
	buffersBytes  = 32 << 20
	leastBoundary = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunk is a range of one projection of one expert that lies in one lane.
type chunk struct {
	id         layout.ExpertID
	projection int
	lane       int
	offset     int64 // in the lane
	bytes      int64
	last       bool   // of the projection
	sum        uint32 // of the whole projection

	buf  []byte // goes back when the chunk has been written
	data []byte
	err  error
	done chan struct{} // closed when data or err is there
}

// reads delivers all chunks of a plan in the order in which they are written.
type reads struct {
	store   *layout.Store
	ordered chan *chunk
	todo    chan *chunk
	buffers chan []byte
	group   *errgroup.Group
	cancel  context.CancelFunc
	ctx     context.Context
	once    sync.Once
	err     error
}

// startReads begins to read ahead. The caller ends it with stop.
func startReads(ctx context.Context, store *layout.Store, p *plan, parallel int) *reads {
	if parallel <= 0 {
		parallel = defaultReads
	}
	parallel = min(parallel, maxParallel)
	r := &reads{store: store, todo: make(chan *chunk)}
	r.ctx, r.cancel = context.WithCancel(ctx)
	r.makeBuffers(parallel)
	r.ordered = make(chan *chunk, cap(r.buffers))
	r.group, r.ctx = errgroup.WithContext(r.ctx)
	r.group.Go(func() error { return r.plan(p) })
	for range parallel {
		r.group.Go(r.work)
	}
	return r
}

// makeBuffers makes one buffer for each read and one more for each that waits to be
// written.
func (r *reads) makeBuffers(parallel int) {
	align := int64(leastBoundary)
	for _, lane := range r.store.Lanes() {
		a := lane.File.Direct()
		align = max(align, int64(a.Memory), int64(a.Offset))
	}
	count := min(2*parallel, max(2, int(buffersBytes/(chunkBytes+2*align))))
	r.buffers = make(chan []byte, count)
	for range count {
		b := make([]byte, chunkBytes+3*align)
		skip := -int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
		r.buffers <- b[skip:][:chunkBytes+2*align]
	}
}

// plan hands out all chunks in order.
func (r *reads) plan(p *plan) error {
	defer close(r.ordered)
	defer close(r.todo)
	var place layout.Placement
	for i := range p.tensors {
		t := &p.tensors[i]
		for e := t.first; e < t.end; e++ {
			id := layout.ExpertID{Layer: int32(t.layer), Index: int32(e)}
			if err := r.store.Locate(id, &place); err != nil {
				return err
			}
			if err := r.planPart(id, t.projection, &place); err != nil {
				return err
			}
		}
	}
	return nil
}

// planPart cuts a projection where its record is cut over lanes, and into chunks.
func (r *reads) planPart(id layout.ExpertID, projection int, place *layout.Placement) error {
	part := place.Parts[projection]
	for _, read := range place.Reads {
		from, end := max(part.At, read.At), min(part.At+part.Bytes, read.At+read.Bytes)
		for at := from; at < end; at += chunkBytes {
			c := &chunk{
				id: id, projection: projection, lane: read.Lane, offset: read.Offset + at - read.At, bytes: min(chunkBytes, end-at),
				sum: part.Sum, done: make(chan struct{}),
			}
			c.last = at+c.bytes == part.At+part.Bytes
			if err := r.hand(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// hand gives a chunk to a reader, and to the writer behind those before it. It waits
// for a buffer first, so that no more is read ahead than there is room for.
func (r *reads) hand(c *chunk) error {
	select {
	case c.buf = <-r.buffers:
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	r.ordered <- c // it has room for as many chunks as there are buffers
	select {
	case r.todo <- c:
		return nil
	case <-r.ctx.Done():
		c.err = r.ctx.Err()
		close(c.done)
		return c.err
	}
}

// work reads chunks until there are no more.
func (r *reads) work() error {
	for c := range r.todo {
		c.err = r.read(c)
		close(c.done)
	}
	return nil
}

// read brings a chunk, in multiples of what its lane's device demands.
func (r *reads) read(c *chunk) error {
	lane := r.store.Lanes()[c.lane]
	align := lane.File.Direct()
	block := int64(max(align.Memory, align.Offset, 1))
	start := c.offset &^ (block - 1)
	skip := c.offset - start
	want := (skip + c.bytes + block - 1) &^ (block - 1)
	n, err := lane.File.ReadAt(c.buf[:want], start)
	if int64(n) < skip+c.bytes {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %v %s: %d bytes at %d of %s: %w", c.id, r.name(c), c.bytes, c.offset, lane.Path, err)
	}
	c.data = c.buf[skip : skip+c.bytes]
	return nil
}

func (r *reads) name(c *chunk) string {
	return r.store.Record(int(c.id.Layer))[c.projection].Name
}

// copyTo writes the next projection into w, if it is the one that is asked for, and
// checks it. What follows a wrong checksum is an error, not data.
func (r *reads) copyTo(w io.Writer, id layout.ExpertID, projection int) error {
	var sum uint32
	for {
		c, ok := <-r.ordered
		if !ok {
			return errors.Join(r.ctx.Err(), fmt.Errorf("nothing was read for %v", id))
		}
		<-c.done
		if c.err != nil {
			return c.err
		}
		if c.id != id || c.projection != projection {
			return fmt.Errorf("%v %s was read where %v is to be written", c.id, r.name(c), id)
		}
		sum = crc32.Update(sum, castagnoli, c.data)
		_, err := w.Write(c.data)
		r.buffers <- c.buf
		if err != nil || !c.last {
			if err != nil {
				return err
			}
			continue
		}
		if sum != c.sum {
			return &layout.CorruptError{Path: r.store.Lanes()[c.lane].Path, Offset: c.offset,
				Reason: fmt.Sprintf("%v %s, which ends here: checksum is %08x, the index says %08x: verify the store", id, r.name(c), sum, c.sum)}
		}
		return nil
	}
}

// stop ends the readers and joins them; a second call returns the same.
func (r *reads) stop() error {
	r.once.Do(func() {
		r.cancel()
		if err := r.group.Wait(); !errors.Is(err, context.Canceled) {
			r.err = err
		}
	})
	return r.err
}
