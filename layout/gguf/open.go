package gguf

import (
	"fmt"
	"slices"

	"outrider/layout"
)

// File is a checkpoint's metadata and tensor table, of all its shards.
// Immutable and safe for concurrent use.
type File struct {
	fsys    layout.FS
	version int
	big     bool
	keys    []string
	meta    map[string]Value
	shards  []layout.CheckpointFile
	tensors []Tensor
	byName  map[string]int
}

// Open reads the headers of the checkpoint at path: a single GGUF file, any
// shard of a split one, whose other shards then lie beside it, or the folder that
// holds either and no other model. No file stays open. Errors of fsys are
// wrapped; see FormatError for all others.
func Open(fsys layout.FS, path string) (*File, error) {
	info, err := fsys.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: open %s: %w", path, err)
	}
	if info.IsDir() {
		if path, err = theModel(fsys, path); err != nil {
			return nil, err
		}
	}
	first, err := readShard(fsys, path)
	if err != nil {
		return nil, err
	}
	shards, err := siblings(fsys, first)
	if err != nil {
		return nil, err
	}
	return join(fsys, shards)
}

func join(fsys layout.FS, shards []*shard) (*File, error) {
	first, count := shards[0], 0
	for _, s := range shards {
		count += len(s.tensors)
	}
	f := &File{fsys: fsys, version: int(first.version), big: first.big, keys: first.keys, meta: first.meta,
		tensors: make([]Tensor, 0, count), byName: make(map[string]int, count)}
	for i, s := range shards {
		f.shards = append(f.shards, s.file)
		for _, t := range s.tensors {
			if j, twice := f.byName[t.Name]; twice {
				return nil, wrong(ErrSplit, s.file.Path, "tensor %q is also in %s", t.Name, f.shards[f.tensors[j].Shard].Path)
			}
			t.Shard = i
			f.byName[t.Name] = len(f.tensors)
			f.tensors = append(f.tensors, t)
		}
	}
	return f, nil
}

// Version is the GGUF version of the (first) file: 2 or 3.
func (f *File) Version() int { return f.version }

// BigEndian reports whether the file is big-endian. Metadata is decoded all the
// same; tensor bytes are handed out as they are: see Tensor.BigEndian.
func (f *File) BigEndian() bool { return f.big }

// Meta looks up a metadata value. Of a split checkpoint the first shard's
// metadata counts.
func (f *File) Meta(key string) (Value, bool) {
	v, ok := f.meta[key]
	return v, ok
}

// Keys lists the metadata keys in the order of the file.
func (f *File) Keys() []string { return slices.Clone(f.keys) }

// Tensors lists the tensors in the order of the files.
func (f *File) Tensors() []Tensor { return slices.Clone(f.tensors) }

// Tensor looks up a tensor by its full name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

// Shards lists the files, in order; Tensor.Shard counts them.
func (f *File) Shards() []layout.CheckpointFile { return slices.Clone(f.shards) }

// Architecture is general.architecture, "" if the checkpoint doesn't say.
func (f *File) Architecture() string {
	s, _ := f.meta["general.architecture"].Str()
	return s
}

// ArchMeta looks up a value under the architecture's prefix:
// ArchMeta("expert_count") is Meta("qwen3moe.expert_count").
func (f *File) ArchMeta(key string) (Value, bool) { return f.Meta(f.Architecture() + "." + key) }
