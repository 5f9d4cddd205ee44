package layout

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
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
}

// Build copies the experts of a checkpoint into a new store as planned. It
// writes beside the target, in Dir + ".building" and, for lanes elsewhere and the
// copies beside them, their path + ".building", reads back and checks every byte that it wrote, and
// renames at the end. It never replaces a file, and removes all it wrote when
// it fails or when ctx ends. It uses less than 64 MiB for buffers, or three times
// the largest router matrix.
//
// Errors: ErrExists if the target or a lane is there already; ErrUnfinished if
// a killed build lies beside it; ErrNoSpace; ErrSourceChanged; ErrCheckpoint;
// ErrPlan; a *CorruptError if what was read back is not what was written.
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
	lanes   []buildLane
	copies  []buildLane // beside each lane; no temp: none
	workers int
	discard bool
	source  *spanReader
	meter   meter
	made    []string // what undo removes
}

// buildLane is where a lane is built and where it goes.
type buildLane struct {
	entry  string // its path in the manifest
	target string // empty: it moves with the folder
	temp   string
	size   int64
	file   WriteFile
}

func newBuilder(opts BuildOptions) (*builder, error) {
	if opts.Plan == nil || opts.Checkpoint == nil || opts.Dir == "" {
		return nil, fmt.Errorf("layout: build: %w: plan, checkpoint and folder are needed", ErrPlan)
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
		fs: opts.FS, dir: dir, temp: dir + tempSuffix, plan: opts.Plan, cp: opts.Checkpoint,
		table: opts.Plan.table, workers: workersFor(opts.Parallel), discard: opts.DiscardUnfinished,
	}
	b.table.sums = make([]uint32, b.table.rows()*b.table.width)
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

// laneFile says where a lane is built for a store whose folder is absolute.
func (b *builder) laneFile(path, absolute string) (buildLane, error) {
	switch {
	case !filepath.IsAbs(path):
		return buildLane{entry: path, temp: filepath.Join(b.temp, path)}, nil
	case filepath.Dir(path) == absolute:
		name := filepath.Base(path)
		if err := checkNewLanePath(name); err != nil {
			return buildLane{}, fmt.Errorf("layout: build: %w: lane %w", ErrPlan, err)
		}
		return buildLane{entry: name, temp: filepath.Join(b.temp, name)}, nil
	}
	return buildLane{entry: path, target: path, temp: path + tempSuffix}, nil
}

// files lists all files that are built as lanes are: the lanes, then the copies.
func (b *builder) files() []*buildLane {
	var out []*buildLane
	for i := range b.lanes {
		out = append(out, &b.lanes[i])
	}
	for i := range b.copies {
		if b.copies[i].temp != "" {
			out = append(out, &b.copies[i])
		}
	}
	return out
}

// prepare looks for everything that can be known to go wrong before writing.
func (b *builder) prepare() error {
	if err := b.mustNotExist(b.dir); err != nil {
		return err
	}
	for _, lane := range b.files() {
		if lane.target != "" {
			if err := b.mustNotExist(lane.target); err != nil {
				return err
			}
		}
	}
	if err := b.clearUnfinished(); err != nil {
		return err
	}
	return b.checkSpace()
}

func (b *builder) mustNotExist(path string) error {
	_, err := b.fs.Stat(path)
	switch {
	case err == nil:
		return fmt.Errorf("layout: build: %s %w: name another target, or remove it first", path, ErrExists)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("layout: build: %w", err)
	}
	return nil
}

// checkSpace adds up what each device has to take.
func (b *builder) checkSpace() error {
	type device struct {
		dir  string
		need int64
	}
	var devices []device
	known := map[string]int{}
	add := func(dir string, bytes int64) error {
		info, err := b.fs.Stat(dir)
		if err != nil {
			return fmt.Errorf("layout: build: folder of the target: %w", err)
		}
		key := dir
		if id, ok := deviceOf(info); ok {
			key = fmt.Sprintf("device %d", id)
		}
		if _, ok := known[key]; !ok {
			known[key] = len(devices)
			devices = append(devices, device{dir: dir})
		}
		devices[known[key]].need += bytes
		return nil
	}
	if err := add(filepath.Dir(b.dir), b.table.indexSize()+manifestReserve+b.routerSpace()+b.copiesSpace()); err != nil {
		return err
	}
	for _, lane := range b.files() {
		dir := filepath.Dir(b.dir)
		if lane.target != "" {
			dir = filepath.Dir(lane.target)
		}
		if err := add(dir, lane.size); err != nil {
			return err
		}
	}
	for _, d := range devices {
		free, err := b.fs.Free(d.dir)
		if errors.Is(err, errors.ErrUnsupported) {
			continue // the system can't say: writing will tell
		}
		if err != nil {
			return fmt.Errorf("layout: build: %w", err)
		}
		if free < d.need {
			return fmt.Errorf("layout: build: %w: %s has %d bytes free, the store needs %d there: free %d bytes or spread the store over more lanes",
				ErrNoSpace, d.dir, free, d.need, d.need-free)
		}
	}
	return nil
}

// run writes, checks and renames.
func (b *builder) run(ctx context.Context) (*BuildReport, error) {
	if err := b.create(); err != nil {
		return nil, errors.Join(err, b.closeLanes())
	}
	id, copies, err := b.writeFiles(ctx)
	if err := errors.Join(err, b.closeLanes()); err != nil {
		return nil, err
	}
	if err := b.readBack(ctx, copies); err != nil {
		return nil, err
	}
	routers, err := b.writeRouters(ctx, hex.EncodeToString(id[:]))
	if err != nil {
		return nil, err
	}
	if err := b.writeMeta(id, copies); err != nil {
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
	}, nil
}
