package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"outrider/layout"
)

const (
	maxTensors     = 1 << 22  // of a set: far beyond any model that is known
	maxConfigBytes = 16 << 20 // those that are known have some kilobytes
)

// Set is the headers of all files of one model. Immutable and safe for
// concurrent use; it holds no file open.
type Set struct {
	dir     string
	shards  []layout.CheckpointFile
	tensors []SetTensor
	byName  map[string]int // of a tensor in parts the first one
	config  string
	data    []byte
	notes   []string
}

// SetTensor is a tensor, and in which file it lies.
type SetTensor struct {
	Tensor
	Shard int // counts Set.Shards
	// Part numbers the parts of a tensor that tensor-parallel files share between
	// them: K of a file whose name ends in "-TP-K". 0 for every whole tensor.
	Part int
}

// OpenSet reads the headers of a model's files. path is one of
//
//   - a folder: the index that is in it says which files are the model; without
//     an index all of its .safetensors files together are,
//   - an index: "model.safetensors.index.json",
//   - a .safetensors file: with its whole set if an index beside it or its own name
//     ("model-00002-of-00003.safetensors") says that it is a shard, else alone.
//
// Index and headers must name the same tensors in the same files, no file of the
// set may be missing, and no name may stand twice, other than in files that are
// marked as tensor-parallel ("…-TP-003.safetensors"). Of a folder's other files those
// that hold the weights a second time ("consolidated*.safetensors" beside others,
// folders such as "original") and adapters ("adapter_*.safetensors") are left out; Notes
// tells of it. Where it is not plain which files are meant, none are read: the
// error names them.
//
// Errors of fsys are wrapped; all others are a *FormatError, with ErrIndex,
// ErrMissingShard, ErrSet or ErrConfig, or what Open says of a single file.
func OpenSet(fsys layout.FS, path string) (*Set, error) {
	c, err := choose(fsys, path)
	if err != nil {
		return nil, err
	}
	s := &Set{dir: c.dir, notes: c.notes, byName: map[string]int{}}
	if c.index != nil {
		s.tensors, s.byName = make([]SetTensor, 0, len(c.index.of)), make(map[string]int, len(c.index.of))
	}
	parts, err := s.readShards(fsys, c.files)
	if err != nil {
		return nil, err
	}
	if parts != nil {
		if err := s.checkParts(parts); err != nil {
			return nil, err
		}
	}
	if c.index != nil {
		if err := s.checkIndex(c.index); err != nil {
			return nil, err
		}
	}
	return s, s.readConfig(fsys)
}

// Shards lists the files, in order; SetTensor.Shard counts them.
func (s *Set) Shards() []layout.CheckpointFile { return slices.Clone(s.shards) }

// Tensors lists the tensors, file by file in the order of their headers.
func (s *Set) Tensors() []SetTensor { return slices.Clone(s.tensors) }

// Tensor looks up a tensor by its name; of one in parts, the first part.
func (s *Set) Tensor(name string) (SetTensor, bool) {
	i, ok := s.byName[name]
	if !ok {
		return SetTensor{}, false
	}
	return s.tensors[i], true
}

// Config is the text of config.json beside the files, or of params.json where only
// that is there (Mistral's own form), and its path. ok is false if there is neither.
func (s *Set) Config() (path string, data []byte, ok bool) {
	return s.config, slices.Clone(s.data), s.config != ""
}

// Notes are sentences about what is odd and yet no fault: files of the folder
// that were left out, shards without an index, an index with a wrong total size
// (quantised models often keep that of the model they were made from).
func (s *Set) Notes() []string { return slices.Clone(s.notes) }

func (s *Set) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// readShards reads the headers. Where files are marked as tensor-parallel it
// returns in which parts each of their tensors is.
func (s *Set) readShards(fsys layout.FS, files []string) (parts map[string][]int, err error) {
	for shard, name := range files {
		f, err := Open(fsys, filepath.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		if len(s.tensors)+len(f.tensors) > maxTensors {
			return nil, wrong(ErrSet, f.source.Path, -1, "with it the set has %d tensors, the limit is %d", len(s.tensors)+len(f.tensors), maxTensors)
		}
		s.shards = append(s.shards, f.source)
		part, parallel := partOf(name)
		if parallel && parts == nil {
			parts = map[string][]int{}
		}
		s.tensors = slices.Grow(s.tensors, len(f.tensors))
		for _, t := range f.tensors {
			first, twice := s.byName[t.Name]
			if twice && (part < 0 || len(parts[t.Name]) == 0 || slices.Contains(parts[t.Name], part) || parts[t.Name][0] < 0) {
				return nil, wrong(ErrSet, f.source.Path, t.Offset, "tensor %q is also in %s: the same weights twice, or two models; put one of the files away, or give the path of those that are meant",
					t.Name, s.shards[s.tensors[first].Shard].Path)
			}
			if !twice {
				s.byName[t.Name] = len(s.tensors)
			}
			if parallel {
				parts[t.Name] = append(parts[t.Name], part)
			}
			s.tensors = append(s.tensors, SetTensor{t, shard, max(part, 0)})
		}
	}
	return parts, nil
}

// readConfig reads the configuration that lies beside the files.
func (s *Set) readConfig(fsys layout.FS) error {
	for _, name := range []string{"config.json", "params.json"} {
		path := filepath.Join(s.dir, name)
		data, err := readWhole(fsys, path, ErrConfig, maxConfigBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		s.config, s.data = path, data
		return err
	}
	return nil
}

// readWhole reads a small file; one of more than most bytes is refused.
func readWhole(fsys layout.FS, path string, sentinel error, most int64) (data []byte, err error) {
	file, err := fsys.Open(path, layout.Buffered)
	if err != nil {
		return nil, fmt.Errorf("safetensors: open %s: %w", path, err)
	}
	defer func() {
		if cerr := file.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("safetensors: close %s: %w", path, cerr)
		}
	}()
	if n := file.Size(); n > most {
		return nil, wrong(sentinel, path, -1, "it has %d bytes, the limit is %d", n, most)
	}
	data = make([]byte, file.Size())
	if len(data) == 0 {
		return data, nil
	}
	return data, readAt(file, path, data, 0)
}
