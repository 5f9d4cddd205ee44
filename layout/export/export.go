package export

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"outrider/layout"
)

// Forms of checkpoints.
const (
	GGUF        = "gguf"
	Safetensors = "safetensors"
)

// How large a file becomes before the tensors are spread over several, unless
// Options say otherwise: what the published checkpoints of each form keep to.
const (
	safetensorsFile = 5_000_000_000
	ggufFile        = 50_000_000_000
)

// partSuffix is what the folder is called until it is whole.
const partSuffix = ".exporting"

// What can be wrong, beside layout's own errors.
var (
	// ErrNoTensors: the store does not know the names of its tensors.
	ErrNoTensors = errors.New("the store does not name its source tensors")
	// ErrFormat: the tensors cannot be written in that form.
	ErrFormat = errors.New("other format")
)

// Options say what to export.
type Options struct {
	FS    layout.WriteFS // nil means layout.OS()
	Store string         // the store's folder
	// Out is the folder to make, which must not exist; its parent must. In it will be
	// experts.gguf, or model.safetensors; shards if that would be too large, with an
	// index for safetensors.
	Out string
	// Format is GGUF or Safetensors; it must be the form of the checkpoint that the
	// store was built from, since nothing is converted. Empty means that form.
	Format string
	// ShardBytes is how many tensor bytes a file may have; a larger tensor has a file of
	// its own. 0 means 5 GB for safetensors and 50 GB for GGUF.
	ShardBytes int64
	// Progress is told how many of the tensor bytes are written. It is called from one
	// goroutine; nil means nobody asks.
	Progress func(done, total int64)
	// Parallel is the number of reads at a time, at most 32; 0 means 4.
	Parallel int
}

// Report is what Export has written.
type Report struct {
	Store   string // id
	Format  string
	Files   []string // in Out, in order
	Tensors int
	Bytes   int64 // of the tensors: all expert bytes of the store
}

// Export writes the expert tensors of a store into a new folder. Each expert's bytes
// are read around the page cache where that works, and held against the store's
// checksums on the way. It writes into Out + ".exporting", syncs, and renames at
// the end; it never replaces anything, and removes all it wrote when it fails or when
// ctx ends. It uses less than 64 MiB for buffers.
//
// Errors: layout.ErrExists if Out is there; layout.ErrUnfinished if a killed export
// lies beside it; ErrNoTensors for a store of an older builder; ErrFormat;
// layout.ErrNoSpace; a *layout.CorruptError for a record whose checksum does not hold;
// those of layout.OpenStore.
func Export(ctx context.Context, opts Options) (report *Report, err error) {
	if opts.FS == nil {
		opts.FS = layout.OS()
	}
	store, err := layout.OpenStore(opts.FS, opts.Store, layout.Direct)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	plan, err := planOf(store.Manifest(), opts)
	if err != nil {
		return nil, fmt.Errorf("export: %s: %w", opts.Store, err)
	}
	out := &folder{fs: opts.FS, dir: filepath.Clean(opts.Out), temp: filepath.Clean(opts.Out) + partSuffix}
	if err := out.prepare(plan.bytes); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	if err := run(ctx, store, plan, out, opts); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: %w", layout.ErrNoSpace, err)
		}
		return nil, errors.Join(fmt.Errorf("export %s: %w", opts.Store, err), out.undo())
	}
	return &Report{Store: store.Manifest().ID, Format: plan.format, Files: out.names, Tensors: len(plan.tensors), Bytes: plan.bytes}, nil
}

// run writes the files and gives the folder its name.
func run(ctx context.Context, store *layout.Store, plan *plan, out *folder, opts Options) error {
	if err := out.begin(); err != nil {
		return err
	}
	reads := startReads(ctx, store, plan, opts.Parallel)
	err := plan.write(reads, out, opts.Progress)
	if err := errors.Join(err, reads.stop()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return out.commit()
}

// folder is what is being made.
type folder struct {
	fs        layout.WriteFS
	dir, temp string
	names     []string
	begun     bool
}

// prepare looks for everything that can be known to go wrong before writing.
func (f *folder) prepare(bytes int64) error {
	for path, sentinel := range map[string]error{f.dir: layout.ErrExists, f.temp: layout.ErrUnfinished} {
		_, err := f.fs.Stat(path)
		switch {
		case err == nil && sentinel == layout.ErrExists:
			return fmt.Errorf("%s %w: name another target, or remove it first", path, sentinel)
		case err == nil:
			return fmt.Errorf("%w: a killed export left %s: remove it by hand, if no other export is running", sentinel, path)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	free, err := f.fs.Free(filepath.Dir(f.dir))
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case err != nil:
		return err
	case free < bytes:
		return fmt.Errorf("%w: %s has %d bytes free, the tensors need %d: free %d bytes",
			layout.ErrNoSpace, filepath.Dir(f.dir), free, bytes, bytes-free)
	}
	return nil
}

func (f *folder) begin() error {
	if err := f.fs.Mkdir(f.temp); err != nil {
		return err
	}
	f.begun = true
	return nil
}

// commit gives the folder its name; all files in it are synced.
func (f *folder) commit() error {
	if err := f.fs.SyncDir(f.temp); err != nil {
		return err
	}
	if err := f.fs.Rename(f.temp, f.dir); err != nil {
		return err
	}
	f.begun = false
	return f.fs.SyncDir(filepath.Dir(f.dir))
}

func (f *folder) undo() error {
	if !f.begun {
		return nil
	}
	if err := f.fs.RemoveAll(f.temp); err != nil {
		return fmt.Errorf("export: clean up: %w", err)
	}
	return nil
}
