package drive

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"outrider/layout"
)

// several is a Reader of the file that has so many reads under way at once; nil where
// there is none, so that each needs a worker.
func (r *reader) several(depth int) layout.Reader {
	several := layout.NewReader(r.file)
	if several != nil && several.Room() < depth {
		_ = several.Close() // nothing was read
		return nil
	}
	return several
}

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
	places, flying := make([]flight, depth), 0
	start := func(i int) {
		p := &places[i]
		p.off, p.poison = random.Int64N((r.bytes-r.block)/r.step+1)*r.step, random.Uint64()
		mark(p.buf[0], p.poison)
		p.began = time.Now()
		several.Start(r.file, i, p.buf[:], p.off)
		flying++
	}
	for i := range places {
		places[i].buf[0] = r.buffers[i*int(r.block):][:r.block:r.block]
		start(i)
	}
	for flying > 0 {
		i, n, err := several.Wait()
		p, now := &places[i], time.Now()
		flying--
		if err := r.judge(p.buf[0], p.off, p.poison, n, err); err != nil {
			return nil, err
		}
		reads = append(reads, done{end: now.Sub(began), took: now.Sub(p.began)})
		if p.reads++; ctx.Err() == nil && (p.reads < minReads || now.Sub(began) < slice) {
			start(i)
		}
	}
	return reads, ctx.Err()
}
