package layout

import (
	"context"
	"errors"
	"fmt"
)

// newScanner checks lanes against the table as far as it is known.
func (b *builder) newScanner(lanes []Lane, m *meter) *scanner {
	s := newScanner(&b.table, lanes, b.plan.laneSizes(), b.chunk, m)
	s.copies = b.plan.copies
	return s
}

// readBack checks every byte that lies on the devices now and has not been read back
// yet, around the page cache where that works. copies is the index of the copies.
func (b *builder) readBack(ctx context.Context, memory *workMemory, copies []byte) (err error) {
	lanes, err := b.openBack()
	defer func() { err = errors.Join(err, closeLanes(lanes)) }()
	if err != nil {
		return err
	}
	if err := b.checkCopyHeaders(lanes, copies); err != nil {
		return err
	}
	s := b.newScanner(lanes, &b.meter)
	s.checked = b.checked
	memory.reset()
	return s.all(ctx, b.workers, memory, readBackError)
}

func readBackError(found []Damage) error {
	d := found[0]
	if d.ID.Layer < 0 {
		return corrupt(d.Lane, d.Offset, "read back: %s: check the device", d.Reason)
	}
	return corrupt(d.Lane, d.Offset, "read back: %v %s: %s: check the device", d.ID, d.Projection, d.Reason)
}

// openBack opens what was written of all lanes. What it has opened it returns with
// the error too.
func (b *builder) openBack() (lanes []Lane, err error) {
	for i := range b.lanes {
		var lane Lane
		lane.Path, lane.File, err = b.openWritten(b.lanes[i])
		if err == nil && b.copies[i].temp != "" {
			lane.CopiesPath, lane.Copies, err = b.openWritten(b.copies[i])
		}
		lanes = append(lanes, lane)
		if err != nil {
			return lanes, err
		}
	}
	return lanes, nil
}

func (b *builder) openWritten(lane *buildLane) (string, File, error) {
	f, err := b.fs.Open(lane.path(), Direct)
	if err != nil {
		return lane.path(), nil, fmt.Errorf("read back: %w", err)
	}
	if f.Size() != lane.size {
		return lane.path(), f, corrupt(lane.path(), min(f.Size(), lane.size), "read back: it has %d bytes, %d were written", f.Size(), lane.size)
	}
	return lane.path(), f, nil
}

func closeLanes(lanes []Lane) error {
	var errs []error
	for i := range lanes {
		errs = append(errs, lanes[i].close())
	}
	return errors.Join(errs...)
}
