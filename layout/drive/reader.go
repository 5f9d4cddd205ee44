package drive

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"outrider/layout"
)

// reader reads blocks at random places of a file, as many at once as fit into
// the buffers.
type reader struct {
	target
	block, step int64
	buffers     []byte
	seed        uint64
}

// minReads is how often each buffer is read into: the first time fills the
// drive's queue, and the rate is that of the times after it.
const minReads = 2

// done is one read that has ended.
type done struct {
	end  time.Duration // since the slice began
	took time.Duration
}

// read reads for a slice of time. Reads that are under way at its end are
// waited for and counted.
func (r *reader) read(ctx context.Context, slice time.Duration) (sample, error) {
	depth := len(r.buffers) / int(r.block)
	reads := make([][]done, depth)
	several := layout.NewDeepReader(depth, r.file)
	cpu, began := cpuTime(), time.Now()
	group, ctx := errgroup.WithContext(ctx)
	if several != nil {
		group.Go(func() (err error) {
			reads[0], err = r.deep(ctx, several, depth, began, slice)
			return err
		})
	} else {
		for i := range depth {
			group.Go(func() (err error) {
				reads[i], err = r.work(ctx, uint64(i), r.buffer(i), began, slice)
				return err
			})
		}
	}
	err := group.Wait()
	cpu = cpuTime() - cpu
	if err != nil {
		return sample{}, err
	}
	return sampleOf(slices.Concat(reads...), r.block, depth, cpu), nil
}

// buffer is the i-th that blocks are read into.
func (r *reader) buffer(i int) []byte { return r.buffers[i*int(r.block):][:r.block:r.block] }

// work reads into one buffer until the slice ends. A panic of a file becomes an
// error: in a worker it would end the process.
func (r *reader) work(ctx context.Context, worker uint64, buf []byte, began time.Time, slice time.Duration) (reads []done, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("drive: panic in a read of %s: %v", r.path, p)
		}
	}()
	random := rand.New(rand.NewPCG(shuffleSeed^r.seed, worker))
	places := (r.bytes-r.block)/r.step + 1
	for len(reads) < minReads || time.Since(began) < slice {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		took, err := r.readOne(buf, random.Int64N(places)*r.step, random.Uint64())
		if err != nil {
			return nil, err
		}
		reads = append(reads, done{end: time.Since(began), took: took})
	}
	return reads, nil
}

// readOne reads a block.
func (r *reader) readOne(buf []byte, off int64, poison uint64) (time.Duration, error) {
	mark(buf, poison)
	began := time.Now()
	n, err := r.file.ReadAt(buf, off)
	took := time.Since(began)
	return took, r.judge(buf, off, poison, n, err)
}

// mark lays poison at both ends of a buffer: if it is still there, a read only claimed
// to have happened.
func mark(buf []byte, poison uint64) {
	binary.LittleEndian.PutUint64(buf, poison)
	binary.LittleEndian.PutUint64(buf[len(buf)-8:], poison)
}

// judge is the error of a read into a marked buffer.
func (r *reader) judge(buf []byte, off int64, poison uint64, n int, err error) error {
	switch {
	case n < len(buf):
		if err == nil {
			err = short(n, len(buf))
		}
	case binary.LittleEndian.Uint64(buf) == poison && binary.LittleEndian.Uint64(buf[len(buf)-8:]) == poison:
		err = layout.ErrSilentRead
	default:
		return nil
	}
	return fmt.Errorf("drive: read %d bytes at %d of %s: %w", len(buf), off, r.path, err)
}
