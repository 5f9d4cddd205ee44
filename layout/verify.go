package layout

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// maxDamages bounds the list in a report; findings beyond it are counted.
const maxDamages = 1000

// VerifyOptions say what to verify.
type VerifyOptions struct {
	FS  FS     // nil means OS()
	Dir string // the store's folder
	// Source is the checkpoint to compare the tensors with byte for byte; nil
	// compares checksums only.
	Source *Checkpoint
	// Progress is told how many of the store's bytes have been read. It may be
	// called from several goroutines at once; nil means nobody asks.
	Progress func(done, total int64)
	// Parallel is the number of records read at a time, at most 32; 0 means 4.
	Parallel int
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	ID           string // of the store
	Records      int    // records read
	Bytes        int64  // bytes of all lanes, without copies
	PaddingBytes int64
	Compared     bool // with a checkpoint, byte for byte
	// RouterBytes is the size of router.safetensors, which was checked too; 0
	// where the store has none, or it cannot be opened (then it is a finding).
	RouterBytes int64
	// CopyBytes is the size of all files of second copies that were checked, and
	// of their index. Those that cannot be opened are findings.
	CopyBytes int64
	// Damages are the findings, in no particular order, at most 1000 of them.
	Damages []Damage
	// Found counts all findings.
	Found int
}

// OK reports that nothing is wrong.
func (r *VerifyReport) OK() bool { return r.Found == 0 }

// Verify reads a whole store, second copies included, around the page cache where
// possible, and checks bounds, checksums and padding, and with a checkpoint every
// tensor byte.
// Damaged or unreadable records are findings of the report, not errors: an
// error means that the store could not be opened (as OpenStore), that the
// checkpoint does not belong to it (ErrSourceChanged) or could not be read, or
// that ctx ended. It uses less than 64 MiB for buffers.
func Verify(ctx context.Context, opts VerifyOptions) (*VerifyReport, error) {
	if opts.FS == nil {
		opts.FS = OS()
	}
	store, err := OpenStore(opts.FS, opts.Dir, Direct)
	if err != nil {
		return nil, err
	}
	report, err := verify(ctx, store, opts)
	return report, errors.Join(err, store.Close())
}

func verify(ctx context.Context, store *Store, opts VerifyOptions) (_ *VerifyReport, err error) {
	m := store.manifest
	report := &VerifyReport{ID: m.ID, Records: store.table.rows(), PaddingBytes: m.PaddingBytes, Compared: opts.Source != nil}
	for _, size := range store.sizes {
		report.Bytes += size
	}
	report.CopyBytes = store.Copies().Bytes
	workers := workersFor(opts.Parallel)
	s := newScanner(store.table, store.open.lanes, store.sizes, chunkFor(workers), &meter{total: report.Bytes + store.scannedCopies(), tell: opts.Progress})
	s.copies = store.copies
	if opts.Source != nil {
		if s.source, err = newSpanReader(opts.FS, opts.Source, store.table); err != nil {
			return nil, err
		}
		defer s.source.close()
	}
	memory := s.newMemory(workers)
	defer func() { err = errors.Join(err, memory.close()) }()
	var c collector
	if err := s.all(ctx, workers, memory, func(found []Damage) error { c.add(found); return nil }); err != nil {
		return nil, fmt.Errorf("layout: verify %s: %w", store.dir, err)
	}
	c.add(store.copyDamages())
	if report.RouterBytes, err = verifyRouters(ctx, store, opts, &c); err != nil {
		return nil, fmt.Errorf("layout: verify %s: %w", store.dir, err)
	}
	report.Damages, report.Found = c.kept, c.found
	return report, nil
}

// all checks every record, copy and gap, and hands over what each one has wrong
// with it. Each worker takes a buffer from memory.
func (s *scanner) all(ctx context.Context, workers int, memory *workMemory, found func([]Damage) error) error {
	copied, gaps := s.copied()
	gaps = append(s.table.gaps(s.sizes), gaps...)
	rows := s.table.rows()
	start := func() *scanBuffers { return s.buffers(memory) }
	return eachRow(ctx, workers, rows+len(copied)+len(gaps), start, func(ctx context.Context, b *scanBuffers, i int) error {
		var damages []Damage
		var err error
		switch {
		case i < rows:
			damages, err = s.unchecked(ctx, b, i, false)
		case i < rows+len(copied):
			damages, err = s.unchecked(ctx, b, copied[i-rows], true)
		default:
			damages, err = s.gap(ctx, b, gaps[i-rows-len(copied)])
		}
		if err != nil || len(damages) == 0 {
			return err
		}
		return found(damages)
	})
}

func (s *scanner) unchecked(ctx context.Context, b *scanBuffers, row int, copies bool) ([]Damage, error) {
	if s.checked != nil && s.checked[row] {
		return nil, nil
	}
	return s.record(ctx, b, row, copies)
}

// collector gathers findings from several workers.
type collector struct {
	mu    sync.Mutex
	kept  []Damage
	found int
}

func (c *collector) add(found []Damage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found += len(found)
	c.kept = append(c.kept, found[:min(len(found), maxDamages-len(c.kept))]...)
}
