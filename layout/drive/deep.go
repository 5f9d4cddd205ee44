package drive

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"outrider/layout"
)

// flight is a buffer and the read that goes into it.
type flight struct {
	buf    [1][]byte
	off    int64
	poison uint64
	began  time.Time
	reads  int
}

// deep reads into all buffers with one goroutine until the slice ends, and closes the
// Reader. A panic of it becomes an error.
func (r *reader) deep(ctx context.Context, several layout.Reader, depth int, began time.Time, slice time.Duration) (reads []done, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("drive: panic in a read of %s: %v", r.path, p)
		}
	}()
	defer several.Close()
	random := rand.New(rand.NewPCG(shuffleSeed^r.seed, 0))
	flights, flying := make([]flight, depth), 0
	start := func(i int) {
		f := &flights[i]
		f.off, f.poison = random.Int64N((r.bytes-r.block)/r.step+1)*r.step, random.Uint64()
		mark(f.buf[0], f.poison)
		f.began = time.Now()
		several.Start(r.file, i, f.buf[:], f.off)
		flying++
	}
	for i := range flights {
		flights[i].buf[0] = r.buffer(i)
		start(i)
	}
	for flying > 0 {
		i, n, err := several.Wait()
		f, now := &flights[i], time.Now()
		flying--
		if err := r.judge(f.buf[0], f.off, f.poison, n, err); err != nil {
			return nil, err
		}
		reads = append(reads, done{end: now.Sub(began), took: now.Sub(f.began)})
		if f.reads++; ctx.Err() == nil && (f.reads < minReads || now.Sub(began) < slice) {
			start(i)
		}
	}
	return reads, ctx.Err()
}
