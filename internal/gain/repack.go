package gain

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"outrider/layout"
)

// packShare is the part of the time that packing may take.
const packShare = 0.5

// temporary is the sample as a store.
type temporary struct {
	fs    layout.WriteFS
	dir   string // empty once it is removed
	store *layout.Store
	took  time.Duration // of building it
	bytes int64         // of its lanes
}

// pack builds the sample's store and opens it. Where it fails it leaves nothing.
func pack(ctx context.Context, o Options, s *sample, align int64, progress func()) (*temporary, error) {
	plan, err := layout.PlanStore(s.cp, layout.PlanOptions{Align: align})
	if err != nil {
		return nil, fmt.Errorf("gain: %w", err)
	}
	t := &temporary{fs: o.FS, dir: filepath.Join(o.Dir, ".outrider-forecast-"+rand.Text()), bytes: plan.Bytes()}
	limit := time.Duration(packShare * float64(o.Duration))
	packing, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	_, err = layout.Build(packing, layout.BuildOptions{
		FS: o.FS, Dir: t.dir, Plan: plan, Checkpoint: &s.cp, Progress: func(int64, int64) { progress() },
	})
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("gain: %w", context.Cause(ctx))
	case packing.Err() != nil && err != nil:
		return nil, fmt.Errorf("gain: %w: %d bytes were not written and read back within %v: allow more time or less space",
			ErrTime, plan.Bytes(), limit)
	case err != nil:
		return nil, fmt.Errorf("gain: temporary store: %w", err)
	}
	t.took = time.Since(began)
	if t.store, err = layout.OpenStore(o.Reads, t.dir, layout.Direct); err != nil {
		return nil, errors.Join(fmt.Errorf("gain: temporary store: %w", err), t.remove())
	}
	// Windows keeps the names of open files; then they go at the end.
	_ = t.remove()
	return t, nil
}

func (t *temporary) remove() error {
	if t.dir == "" {
		return nil
	}
	if err := t.fs.RemoveAll(t.dir); err != nil {
		return fmt.Errorf("gain: remove the temporary store: %w", err)
	}
	t.dir = ""
	return nil
}

// end closes and removes the store.
func (t *temporary) end() error { return errors.Join(t.store.Close(), t.remove()) }
