package layout

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Bounds of the memory that building and verifying use for buffers.
const (
	defaultParallel = 4
	maxParallel     = 32
	bufferBytes     = 24 << 20 // over all workers and one kind of buffer
	maxChunk        = 4 << 20
)

// workersFor is the number of workers for an option of that name.
func workersFor(parallel int) int {
	if parallel <= 0 {
		return defaultParallel
	}
	return min(parallel, maxParallel)
}

// chunkFor is how much each worker copies at a time.
func chunkFor(workers int) int64 {
	return min(maxChunk, alignDown(bufferBytes/int64(workers), placementAlign))
}

// eachRow runs work for every row on several workers, each with a state of its
// own made by start. The first error stops all; a panic becomes an error.
func eachRow[S any](ctx context.Context, workers, rows int, start func() S, work func(context.Context, S, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(workers, rows) {
		group.Go(func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("layout: panic in a worker: %v\n%s", r, debug.Stack())
				}
			}()
			state := start()
			for {
				row := int(next.Add(1)) - 1
				if row >= rows {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := work(ctx, state, row); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// meter tells a caller how far the work is.
type meter struct {
	done  atomic.Int64
	total int64
	tell  func(done, total int64)
}

func (m *meter) add(n int64) {
	done := m.done.Add(n)
	if m.tell != nil {
		m.tell(done, m.total)
	}
}
