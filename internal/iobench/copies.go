package iobench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"outrider/layout"
	"outrider/runtime"
)

// Copies says whether the runtime lends the very memory that the drive was read into.
type Copies struct {
	Checked int64 `json:"checked"` // projections of experts
	Copied  int64 `json:"copied"`  // of these, with bytes that no read was told to deliver there
}

// span is a range of addresses.
type span struct{ from, to uintptr }

// watched is a source whose lanes note the buffers that they were told to fill.
type watched struct {
	layout.Source
	lanes []layout.Lane

	mu    sync.Mutex
	spans []span
}

func newWatched(src layout.Source) *watched {
	w := &watched{Source: src}
	for _, lane := range src.Lanes() {
		lane.File = watchedFile{File: lane.File, watched: w}
		w.lanes = append(w.lanes, lane)
	}
	return w
}

// Lanes are the source's, watched.
func (w *watched) Lanes() []layout.Lane { return w.lanes }

// watchedFile has no more methods than layout.File, so that every read is a ReadAt.
type watchedFile struct {
	layout.File
	watched *watched
}

// ReadAt is the file's.
func (f watchedFile) ReadAt(p []byte, off int64) (int, error) {
	f.watched.mu.Lock()
	f.watched.spans = append(f.watched.spans, spanOf(p))
	f.watched.mu.Unlock()
	return f.File.ReadAt(p, off)
}

func (w *watched) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spans = w.spans[:0]
}

func spanOf(p []byte) span {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return span{from, from + uintptr(len(p))}
}

// covered reports whether the buffers told to the files hold the whole range.
func (w *watched) covered(s span) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortFunc(w.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, got := range w.spans {
		if got.from <= s.from && s.from < got.to {
			s.from = got.to
		}
		if s.from >= s.to {
			return true
		}
	}
	return s.from >= s.to
}

// countCopies uses some batches of a target and compares the addresses of what is
// lent with those that the files were told.
func countCopies(ctx context.Context, t *Target, fsys layout.FS, o runtime.Options) (c Copies, err error) {
	var w *watched
	r, err := newRunner(t, fsys, o, func(src layout.Source) layout.Source {
		w = newWatched(src)
		return w
	})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	const batches = 4
	for range batches {
		w.forget() // an earlier read of a slot says nothing of this one
		use, err := r.use(ctx, t.Experts)
		if err != nil {
			return c, err
		}
		if err := c.look(ctx, use, w); err != nil {
			return c, fmt.Errorf("iobench: %w", err)
		}
	}
	return c, nil
}

func (c *Copies) look(ctx context.Context, use runtime.Use, w *watched) error {
	defer use.Release()
	for ex, err := range use.Ready(ctx) {
		if err != nil {
			return err
		}
		for i := 0; ; i++ {
			tensor, ok := ex.At(i)
			if !ok {
				break
			}
			c.Checked++
			if !w.covered(spanOf(tensor.Data)) {
				c.Copied++
			}
		}
	}
	return nil
}
