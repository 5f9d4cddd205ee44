package rawread

import (
	"context"
	"fmt"

	"outrider/layout"
)

// readerFor is a Reader of all lanes' files that has that many reads under way at
// once, nil if there is none.
func readerFor(lanes []layout.Lane, reads int) layout.Reader {
	var files []layout.File
	for _, lane := range lanes {
		files = append(files, lane.File)
	}
	if len(files) == 0 {
		return nil
	}
	return layout.NewDeepReader(reads, files...)
}

// deep is one goroutine that has a read under way into each buffer.
type deep struct {
	list   *extents
	lanes  []layout.Lane
	reader layout.Reader
	count  *counts
	blocks []block    // by buffer
	bufs   [][][]byte // by buffer, what is read into
	free   []int      // buffers without a read
}

// run reads blocks until there is none left, and closes the reader. A panic of it
// becomes an error.
func (d *deep) run(ctx context.Context, buffers [][]byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rawread: panic in a read: %v", r)
		}
	}()
	defer d.reader.Close()
	d.blocks, d.bufs = make([]block, len(buffers)), make([][][]byte, len(buffers))
	for i := range buffers {
		d.bufs[i] = make([][]byte, 1)
		d.free = append(d.free, i)
	}
	for more := true; more || len(d.free) < len(buffers); {
		for more && len(d.free) > 0 && ctx.Err() == nil {
			if more, err = d.start(buffers); err != nil {
				return err
			}
		}
		if len(d.free) == len(buffers) {
			break
		}
		if err := d.wait(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// start begins the next read, if there is one.
func (d *deep) start(buffers [][]byte) (bool, error) {
	b, more, err := d.list.take()
	if err != nil || !more {
		return false, err
	}
	last := len(d.free) - 1
	i := d.free[last]
	d.free = d.free[:last]
	d.blocks[i], d.bufs[i][0] = b, buffers[i][:b.bytes]
	d.reader.Start(d.lanes[b.lane].File, i, d.bufs[i], b.offset)
	return true, nil
}

func (d *deep) wait() error {
	i, n, err := d.reader.Wait()
	d.free = append(d.free, i)
	return d.count.judge(d.blocks[i], d.lanes, n, err)
}
