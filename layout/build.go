package layout

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

// BuildOptions say what to build. Plan and Checkpoint must belong together.
type BuildOptions struct {
	FS         WriteFS     // nil means OS()
	Dir        string      // the store's folder, which must not exist; its parent must
	Plan       *Plan       // from PlanStore
	Checkpoint *Checkpoint // what the plan was made for
	// Progress is told how many bytes of the work are done: everything is
	// written once and read back once. It may be called from several goroutines
	// at once; nil means nobody asks.
	Progress func(done, total int64)
	// Parallel is the number of records copied at a time, at most 32; 0 means 4.
	Parallel int
	// DiscardUnfinished removes what a killed build left beside the target. Set
	// it only if no other build of this target is running.
	DiscardUnfinished bool
	// Resume goes on with what a killed build of the same plan and checkpoint left
	// beside the target: records whose checksums hold on the device are kept, and
	// the store is the same to the byte as one built at once. With nothing there the
	// build begins anew. A build with Resume that fails, or whose ctx ends, leaves its
	// part to be resumed again. FS must be a ResumeFS. Set it only if no other build
	// of this target is running.
	Resume bool
}

// BuildReport is what Build has built.
type BuildReport struct {
	ID           string // of the store
	Records      int
	DataBytes    int64 // tensor bytes copied
	PaddingBytes int64
	IndexBytes   int64
	// RouterBytes is the size of router.safetensors; 0 where the checkpoint has no
	// router matrices that can be read (Checkpoint.NoRouters says why).
	RouterBytes int64
	// CopiedRecords have a second copy; CopyBytes is what the copies take, their
	// index included.
	CopiedRecords int
	CopyBytes     int64
	// ReusedRecords of an unfinished build were kept, with ReusedBytes of lanes and copies.
	ReusedRecords int
	ReusedBytes   int64
	// Direct reports that all records were written and read back around the page cache.
	Direct bool
	// JournalBytes were written to note which records are done: see Resume.
	JournalBytes int64
}

// Build copies the experts of a checkpoint into a new store as planned. It
// writes beside the target, in Dir + ".building" and, for lanes elsewhere and the
// copies beside them, their path + ".building", reads back and checks every byte that it wrote, and
// renames at the end. It never replaces a file, and removes all it wrote when
// it fails or when ctx ends, unless Resume is set. Killed at any moment it leaves
// nothing, the store, or what Resume goes on with. Where the system allows, it writes
// around the page cache, and reads each record back as soon as it is written. It uses
// less than 64 MiB for buffers, or three times the largest router matrix.
//
// Errors: ErrExists if the target or a lane is there already; ErrUnfinished if
// a killed build lies beside it, with what to do about it; ErrNoSpace; ErrSourceChanged;
// ErrCheckpoint; ErrPlan; a *CorruptError if what was read back is not what was written.
func Build(ctx context.Context, opts BuildOptions) (*BuildReport, error) {
	b, err := newBuilder(opts)
	if err != nil {
		return nil, err
	}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	if b.source, err = newSpanReader(b.fs, opts.Checkpoint, &b.table); err != nil {
		return nil, err
	}
	defer b.source.close()
	report, err := b.run(ctx)
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
		return nil, errors.Join(fmt.Errorf("layout: build %s: %w", b.dir, err), b.undo())
	}
	return report, nil
}

// builder is one run of Build.
type builder struct {
	fs      WriteFS
	dir     string // the target
	temp    string // where it is built
	plan    *Plan
	cp      *Checkpoint
	table   table // the plan's, with checksums of its own
	lanes   []*buildLane
	copies  []*buildLane // beside each lane; no temp: none
	aligned bool         // all records are fit for direct writes
	workers int
	chunk   int64 // of a record, written or read at a time
	discard bool
	resume  bool
	left    *remains // what a killed build left that is gone on with; nil: nothing
	stamp   [32]byte // of the marker
	journal *journal
	direct  bool   // all records were written around the page cache, and read back so
	checked []bool // rows that have been read back, with their copies
	reused  struct {
		records int
		bytes   int64
	}
	source *spanReader
	meter  meter
	made   []string // what undo removes
}

func newBuilder(opts BuildOptions) (*builder, error) {
	if opts.Plan == nil || opts.Checkpoint == nil || opts.Dir == "" {
		return nil, fmt.Errorf("layout: build: %w: plan, checkpoint and folder are needed", ErrPlan)
	}
	if err := opts.Checkpoint.Validate(); err != nil {
		return nil, err
	}
	if opts.FS == nil {
		opts.FS = OS()
	}
	dir := filepath.Clean(opts.Dir)
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("layout: build: %w", err)
	}
	b := &builder{
		fs: opts.FS, dir: dir, temp: dir + tempSuffix, plan: opts.Plan, cp: opts.Checkpoint, aligned: true,
		table: opts.Plan.table, workers: workersFor(opts.Parallel), discard: opts.DiscardUnfinished, resume: opts.Resume,
	}
	b.table.sums = make([]uint32, b.table.rows()*b.table.width)
	b.checked = make([]bool, b.table.rows())
	for i := range b.table.forms {
		b.aligned = b.aligned && b.table.forms[i].Align >= directWriteAlign
		b.chunk = max(b.chunk, alignUp(b.table.forms[i].Bytes, placementAlign))
	}
	b.chunk = min(b.chunk, chunkFor(b.workers))
	b.meter.tell = opts.Progress
	for _, lane := range opts.Plan.Lanes {
		file, err := b.laneFile(filepath.Clean(lane.Path), absolute)
		if err != nil {
			return nil, err
		}
		file.size = lane.Size
		b.lanes = append(b.lanes, file)
		b.copies = append(b.copies, file.beside(lane.CopySize))
		b.meter.total += 2 * (lane.Size + lane.CopySize)
	}
	return b, nil
}

// prepare looks for everything that can be known to go wrong before writing, and
// deals with what a killed build left.
func (b *builder) prepare() error {
	left, err := b.lookAround()
	if err != nil {
		return err
	}
	if left != nil && (b.discard || !left.begun) {
		if err := b.discardRemains(left); err != nil {
			return err
		}
		left = nil
	}
	b.left = left
	_, err = b.space(left != nil)
	return err
}

// run writes, checks and renames.
func (b *builder) run(ctx context.Context) (*BuildReport, error) {
	id, copies, err := b.writeLanes(ctx)
	if err != nil {
		return nil, err
	}
	routers, err := b.finishMeta(ctx, id, copies)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := b.commit(); err != nil {
		return nil, err
	}
	return &BuildReport{
		ID: hex.EncodeToString(id[:]), Records: b.table.rows(), DataBytes: b.plan.DataBytes,
		PaddingBytes: b.plan.PaddingBytes, IndexBytes: b.table.indexSize(), RouterBytes: routers,
		CopiedRecords: b.plan.CopiedRecords, CopyBytes: b.plan.CopyBytes,
		ReusedRecords: b.reused.records, ReusedBytes: b.reused.bytes, JournalBytes: b.journal.written, Direct: b.direct,
	}, nil
}

// writeLanes makes the lanes and the copies, and reads all of them back. It returns
// the id of the store, and the bytes of the index of the copies, nil if there are none.
func (b *builder) writeLanes(ctx context.Context) (id [storeIDBytes]byte, copies []byte, err error) {
	memory := b.newMemory()
	defer func() { err = errors.Join(err, memory.close()) }()
	if err = b.create(); err == nil {
		id, copies, err = b.writeFiles(ctx, memory)
	}
	if b.journal != nil {
		err = errors.Join(err, b.journal.close())
	}
	if err = errors.Join(err, b.closeLanes()); err != nil {
		return id, nil, err
	}
	return id, copies, b.readBack(ctx, memory, copies)
}

// finishMeta writes what lies in the folder beside the lanes, and returns the size of
// the routers.
func (b *builder) finishMeta(ctx context.Context, id [storeIDBytes]byte, copies []byte) (routers int64, err error) {
	if b.left != nil && b.left.renaming {
		return b.checkMeta(ctx, id, copies)
	}
	if routers, err = b.writeRouters(ctx, hex.EncodeToString(id[:])); err != nil {
		return 0, err
	}
	return routers, b.writeMeta(id, copies)
}
