package layout

import (
	"context"
	"encoding/hex"
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
	rows, err := b.leftRows()
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	lanes, err := b.openLeft()
	defer func() { err = errors.Join(err, closeLanes(lanes)) }()
	if err != nil {
		return err
	}
	s := b.newScanner(lanes, new(meter))
	var records, bytes atomic.Int64
	memory.reset()
	start := func() *scanBuffers { return s.buffers(memory) }
	err = eachRow(ctx, b.workers, len(rows), start, func(ctx context.Context, buf *scanBuffers, i int) error {
		row := rows[i]
		found, err := s.rowAndCopies(ctx, buf, row)
		if err != nil {
			return err
		}
		if len(found) > 0 && b.left.renaming {
			return errors.Join(errRenaming, readBackError(found))
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

// errRenaming says how to go on after damage that is found when some lanes have
// their names already.
var errRenaming = errors.New("the unfinished build had begun to give its lanes their names, and is damaged: remove these lanes, and discard it")

// leftRows lists the rows to look at, with their checksums in the table: those that
// the journal names, or, if the killed build had come to renaming, all of its index.
func (b *builder) leftRows() ([]int, error) {
	if !b.left.renaming {
		// Index, manifest and routers are made anew: they are small.
		for _, name := range []string{manifestName, indexName, routerName, copiesName} {
			if err := b.fs.RemoveAll(filepath.Join(b.temp, name)); err != nil {
				return nil, err
			}
		}
		return b.left.rows, nil
	}
	s, err := openMeta(b.fs, b.temp)
	if err != nil {
		return nil, errors.Join(errRenaming, err)
	}
	copy(b.table.sums, s.table.sums)
	rows := make([]int, b.table.rows())
	for i := range rows {
		rows[i] = i
	}
	return rows, nil
}

// checkMeta holds what a build that was killed while it renamed had written beside
// the lanes against what this one would write. It stays as it is: until all lanes have
// their names only the manifest there tells that they are ours.
func (b *builder) checkMeta(ctx context.Context, id [storeIDBytes]byte, copies []byte) (routers int64, err error) {
	if copies != nil {
		err = b.sameFile(copiesName, copies)
	}
	err = errors.Join(err, b.sameFile(indexName, b.table.encodeIndex(id)))
	if b.cp.Routers != nil {
		path := filepath.Join(b.temp, routerName)
		err = errors.Join(err, b.readRoutersBack(ctx, path, hex.EncodeToString(id[:])))
		if info, statErr := b.fs.Stat(path); statErr == nil {
			routers = info.Size()
		}
	}
	if err != nil {
		return 0, errors.Join(errRenaming, err)
	}
	return routers, nil
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
