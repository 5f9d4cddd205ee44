package iobench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"outrider/internal/dummystore"
	"outrider/layout"
)

// StoresOptions say what Plan plans.
type StoresOptions struct {
	Batches []Batch // nil means DefaultBatches
	// Bytes are shared evenly by the stores, one a batch.
	Bytes int64
	// Dir is where a folder of their own is made for them; "" is the system's for
	// temporary files.
	Dir string
	// FS is what they are checked and opened on; nil means layout.OS().
	FS layout.WriteFS
}

// Stores are the files of a measurement: a store without weights for each batch,
// in a folder that Remove takes away.
type Stores struct {
	opt    StoresOptions
	shapes []layout.Shape
	bytes  []int64 // on the drive
	folder string
}

// Plan checks what can be checked without writing. Errors are ErrTooSmall, with the
// size that would do, layout.ErrNoSpace, and those of a folder that is none.
func Plan(o StoresOptions) (*Stores, error) {
	if len(o.Batches) == 0 {
		o.Batches = DefaultBatches()
	}
	if o.FS == nil {
		o.FS = layout.OS()
	}
	if o.Dir == "" {
		o.Dir = os.TempDir()
	}
	s := &Stores{opt: o}
	records := int64(0)
	for _, b := range o.Batches {
		shape, err := b.shapeFor(o.Bytes / int64(len(o.Batches)))
		if err != nil {
			return nil, s.tooSmall()
		}
		s.shapes = append(s.shapes, shape)
		records += int64(shape.Count()) * b.RecordBytes
	}
	// Before any plan is made: one for far more than the drive holds takes long.
	if err := s.fits(records); err != nil {
		return nil, err
	}
	for i, b := range o.Batches {
		plan, err := dummystore.Plan(dummystore.Options{Shape: s.shapes[i], RecordBytes: b.RecordBytes})
		if err != nil {
			return nil, fmt.Errorf("iobench: %w", err)
		}
		s.bytes = append(s.bytes, plan.Bytes())
	}
	if err := s.fits(s.Bytes()); err != nil {
		return nil, err
	}
	return s, nil
}

// fits checks the free space.
func (s *Stores) fits(bytes int64) error {
	free, err := s.opt.FS.Free(s.opt.Dir)
	if err != nil {
		return fmt.Errorf("iobench: %w: name another folder with --dir", err)
	}
	if free < bytes {
		return fmt.Errorf("iobench: %w: the stores take %d bytes, %s has %d free: give a smaller --size, or another --dir",
			layout.ErrNoSpace, bytes, s.opt.Dir, free)
	}
	return nil
}

func (s *Stores) tooSmall() error {
	least := int64(0)
	for _, b := range s.opt.Batches {
		least = max(least, b.RecordBytes*int64(b.Experts)*batchesOfLayer*leastLayers)
	}
	return fmt.Errorf("%w: %d bytes for stores of %v: want at least %d, that no batch is in memory when it is asked for",
		ErrTooSmall, s.opt.Bytes, s.opt.Batches, least*int64(len(s.opt.Batches)))
}

// Bytes are what the stores take on the drive.
func (s *Stores) Bytes() int64 {
	all := int64(0)
	for _, n := range s.bytes {
		all += n
	}
	return all
}

// Dir is where the stores' folder is made.
func (s *Stores) Dir() string { return s.opt.Dir }

// Make writes the stores, of bytes that cannot be compressed, and reads them back.
// Everything is written once; progress, if not nil, is told of both, also by several
// goroutines at once. When it fails, or ctx ends, nothing is left.
func (s *Stores) Make(ctx context.Context, progress func(done, total int64)) (targets []*Target, err error) {
	if s.folder, err = os.MkdirTemp(s.opt.Dir, "outrider-bench-"); err != nil {
		return nil, fmt.Errorf("iobench: %w: name another folder with --dir", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Remove())
		}
	}()
	before := int64(0)
	for i, b := range s.opt.Batches {
		dir := filepath.Join(s.folder, fmt.Sprintf("%d-%v.outrider", i, b))
		o := dummystore.Options{Shape: s.shapes[i], RecordBytes: b.RecordBytes, FS: s.opt.FS, Dir: dir}
		if progress != nil {
			o.Progress = func(done, _ int64) { progress(before+done, 2*s.Bytes()) }
		}
		if _, err := dummystore.Build(ctx, o); err != nil {
			return nil, fmt.Errorf("iobench: %w", err)
		}
		before += 2 * s.bytes[i]
		t, err := NewTarget(s.opt.FS, func(fsys layout.FS) (layout.Source, error) { return layout.OpenStore(fsys, dir, layout.Direct) })
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// Remove takes the folder and all in it away. A second call does nothing.
func (s *Stores) Remove() error {
	if s.folder == "" {
		return nil
	}
	folder := s.folder
	s.folder = ""
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("iobench: %w", err)
	}
	return nil
}
