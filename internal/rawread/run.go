package rawread

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"outrider/layout"

	"golang.org/x/sync/errgroup"
)

// Run reads the experts and tells what that took. When ctx ends it returns the
// context's cause as soon as the reads under way have ended. Any other error is that
// of a read, and names file, offset and expert. The report counts what was read
// until then.
func Run(ctx context.Context, o Options) (Report, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Report{}, err
	}
	lanes := o.Source.Lanes()
	report := Report{Direct: len(lanes) > 0}
	for _, lane := range lanes {
		report.Direct = report.Direct && layout.IsDirect(lane.File)
	}
	buffers := o.Buffers
	if buffers == nil {
		if buffers, err = NewBuffers(o.Workers, o.Block); err != nil {
			return Report{}, err
		}
		defer func() { _ = buffers.Close() }() // what it could say concerns no read
	}
	list := &extents{opt: o, lanes: len(lanes)}
	start := time.Now()
	if o.MaxDuration > 0 {
		list.until = start.Add(o.MaxDuration)
	}
	var count counts
	group, groupCtx := errgroup.WithContext(ctx)
	if r := readerFor(lanes, o.Workers); r != nil {
		d := &deep{list: list, lanes: lanes, reader: r, count: &count}
		group.Go(func() error { return d.run(groupCtx, buffers.list[:o.Workers]) })
	} else {
		for _, buf := range buffers.list[:o.Workers] {
			group.Go(func() error { return work(groupCtx, list, lanes, buf, &count) })
		}
	}
	err = group.Wait()
	report.Duration = time.Since(start)
	report.Bytes, report.Reads, report.Experts = count.bytes.Load(), count.reads.Load(), list.begun()
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("rawread: %w", context.Cause(ctx))
	}
	return report, err
}

type counts struct{ bytes, reads atomic.Int64 }

// work reads blocks until there is none left. A panic of a file becomes an
// error: in a worker it would end the process.
func work(ctx context.Context, list *extents, lanes []layout.Lane, buf []byte, count *counts) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("rawread: panic in a read: %v", r)
		}
	}()
	for ctx.Err() == nil {
		b, more, err := list.take()
		if err != nil || !more {
			return err
		}
		n, err := lanes[b.lane].File.ReadAt(buf[:b.bytes], b.offset)
		if err := count.judge(b, lanes, n, err); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// judge counts a read, or says what is wrong with it.
func (c *counts) judge(b block, lanes []layout.Lane, n int, err error) error {
	path := lanes[b.lane].Path
	if int64(n) < b.need {
		if err == nil || errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("rawread: %v: read %d of %d bytes at %d of %s: %w", b.id, n, b.need, b.offset, path, err)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("rawread: %v: read %d bytes at %d of %s: %w", b.id, b.bytes, b.offset, path, err)
	}
	c.bytes.Add(b.need)
	c.reads.Add(1)
	return nil
}
