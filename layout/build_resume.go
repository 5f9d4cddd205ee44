package layout

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// reuse reads the records that the journal of a killed build names, and keeps those
// whose checksums hold, copies included. The others are written again.
func (b *builder) reuse(ctx context.Context, memory *workMemory) (err error) {
	if b.left == nil {
		return nil
	}
	// Index, manifest and routers are made anew: they are small.
	for _, name := range []string{manifestName, indexName, routerName, copiesName} {
		if err := b.fs.RemoveAll(filepath.Join(b.temp, name)); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
	}
	lanes, err := b.openLeft()
	defer func() { err = errors.Join(err, closeLanes(lanes)) }()
	if err != nil {
		return err
	}
	s := b.newScanner(lanes, new(meter))
	rows := b.left.rows
	var records, bytes atomic.Int64
	memory.reset()
	start := func() *scanBuffers { return s.buffers(memory) }
	err = eachRow(ctx, b.workers, len(rows), start, func(ctx context.Context, buf *scanBuffers, i int) error {
		row := rows[i]
		found, err := s.rowAndCopies(ctx, buf, row)
		if err != nil {
			return err
		}
		if len(found) > 0 {
			clear(b.table.sumsOf(row))
			return nil
		}
		size := b.table.form(row).Bytes
		if len(b.plan.copies.of(row)) > 0 {
			size *= 2
		}
		b.checked[row] = true
		records.Add(1)
		bytes.Add(size)
		b.meter.add(2 * size)
		return nil
	})
	b.reused.records, b.reused.bytes = int(records.Load()), bytes.Load()
	return err
}

// openLeft opens what a killed build left of all lanes; they may be shorter than they
// will be, and even empty.
func (b *builder) openLeft() (lanes []Lane, err error) {
	for i := range b.lanes {
		lane := Lane{Path: b.lanes[i].path()}
		lane.File, err = b.fs.Open(lane.Path, Direct)
		if err == nil && b.copies[i].temp != "" {
			lane.CopiesPath = b.copies[i].path()
			lane.Copies, err = b.fs.Open(lane.CopiesPath, Direct)
		}
		lanes = append(lanes, lane)
		if err != nil {
			return lanes, fmt.Errorf("resume: %w", err)
		}
	}
	return lanes, nil
}
