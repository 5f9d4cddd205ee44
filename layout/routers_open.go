package layout

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
)

// RouterSource is a Source that may hold router matrices: a Store, or a
// checkpoint opened in place.
type RouterSource interface {
	// Routers describes them. It reads at most a header. The error is an
	// ErrNoRouters with the reason and the remedy where there are none.
	Routers() (*Routers, error)
}

var (
	_ RouterSource = (*Store)(nil)
	_ RouterSource = (*InPlace)(nil)
)

// Routers are the router matrices of a source, read when asked for. It holds
// no file open, is immutable and safe for concurrent use.
type Routers struct {
	CheckpointRouters
	shape Shape
	fsys  FS
	files []CheckpointFile
}

// Bytes is what all matrices, biases and hash tables take in memory once they are loaded.
func (r *Routers) Bytes() int64 { return r.CheckpointRouters.Bytes(r.shape) }

// Load reads the router of a layer from 0 to Layers-1 into new memory, widened
// to float32. The error names file and tensor; a *CorruptError if a store's
// checksum does not hold, an ErrSourceChanged for a file of another size.
func (r *Routers) Load(layer int) (*RouterMatrix, error) {
	if err := r.checkLayer(layer); err != nil {
		return nil, err
	}
	m := new(RouterMatrix)
	for _, t := range r.tensors(layer, r.shape) {
		if t.name == hashName {
			continue
		}
		raw, err := r.read(t.RouterTensor)
		if err != nil {
			return nil, err
		}
		numbers := make([]float32, t.count)
		widen(t.Type, raw, numbers)
		switch t.RouterTensor {
		case &r.Layers[layer].Weight:
			m.Weight = numbers
		case &r.Layers[layer].Bias:
			m.Bias = numbers
		default:
			m.Selection = numbers
		}
	}
	return m, nil
}

func (r *Routers) checkLayer(layer int) error {
	if layer < 0 || layer >= len(r.Layers) {
		return fmt.Errorf("layout: load router: layer %d is outside the model's 0 to %d", layer, len(r.Layers)-1)
	}
	return nil
}

// read reads the bytes of one tensor and checks their sum, if there is one.
func (r *Routers) read(t *RouterTensor) ([]byte, error) {
	want := r.files[t.File]
	f, err := r.fsys.Open(want.Path, Buffered)
	if err != nil {
		return nil, fmt.Errorf("layout: load router: %w", err)
	}
	defer f.Close()
	if f.Size() != want.Size {
		return nil, fmt.Errorf("layout: load router: %w: %s has %d bytes, had %d when it was opened: open it again", ErrSourceChanged, want.Path, f.Size(), want.Size)
	}
	raw := make([]byte, t.Bytes)
	if err := readTouched(f, raw, t.Offset); err != nil {
		return nil, fmt.Errorf("layout: load router: read %s from %s: %w", t.Source, want.Path, err)
	}
	if t.summed {
		if got := crc32.Checksum(raw, castagnoli); got != t.sum {
			return nil, corrupt(want.Path, t.Offset, "%s has checksum %08x, want %08x: build the store again", t.Source, got, t.sum)
		}
	}
	return raw, nil
}

// Routers describes the router matrices that the store was built with. Errors
// beside ErrNoRouters: a *CorruptError, or ErrVersion, of router.safetensors.
func (s *Store) Routers() (*Routers, error) {
	path := filepath.Join(s.dir, routerName)
	r, err := openRouters(s.fsys, path, s.manifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("layout: store %s: %w: it has no %s: build it again with this program, from a checkpoint whose routers can be read", s.dir, ErrNoRouters, routerName)
	}
	return r, err
}

// Routers describes the checkpoint's router matrices.
func (s *InPlace) Routers() (*Routers, error) {
	if s.cp.Routers == nil {
		reason := s.cp.NoRouters
		if reason == "" {
			reason = "its reader does not look for them"
		}
		return nil, fmt.Errorf("layout: checkpoint %s: %w: %s", s.cp.Name, ErrNoRouters, reason)
	}
	return newRouters(s.fsys, &s.cp), nil
}

// newRouters reads from a checkpoint, whose Routers must not be nil.
func newRouters(fsys FS, cp *Checkpoint) *Routers {
	return &Routers{CheckpointRouters: *cp.Routers, shape: cp.Shape, fsys: fsys, files: cp.Files}
}
