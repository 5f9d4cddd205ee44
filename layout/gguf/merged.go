package gguf

import (
	"fmt"
	"iter"
	"strings"
)

// ModelMeta lists the metadata that speaks of the model, in the order of the file:
// all but split.* and general.alignment, which speak of the files. A Writer takes
// it as it is.
func (f *File) ModelMeta() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for _, key := range f.keys {
			if key == keyAlignment || strings.HasPrefix(key, "split.") {
				continue
			}
			if !yield(key, f.meta[key]) {
				return
			}
		}
	}
}

// Align is general.alignment as Writer.Align takes it: 0 if the file does not say
// it. Of a split checkpoint the first shard's counts.
func (f *File) Align() uint32 {
	n, _ := f.meta[keyAlignment].Uint() // checked by Open
	return uint32(n)
}

// Merged is the header that the checkpoint would have as one file, from the magic
// to the start of the tensor data: all tensors in the order of Tensors, the model's
// metadata, the first shard's alignment. For engines that take a header from memory
// (gguf_init_from_buffer of llama.cpp) and tensor data from elsewhere: the table's
// offsets are those of that one file, where the bytes lie is in Tensors.
//
// Refused are a big-endian checkpoint (ErrVersion) and one whose header would be
// larger than Open reads.
func (f *File) Merged() ([]byte, error) {
	if f.big {
		return nil, wrong(ErrVersion, f.shards[0].Path, "it is big-endian, and an engine here would read its numbers backwards; make it little-endian with gguf-convert-endian of llama.cpp's gguf package")
	}
	w := &Writer{Version: uint32(f.version), Align: f.Align()}
	for key, value := range f.ModelMeta() {
		w.Set(key, value)
	}
	for i := range f.tensors {
		w.Tensor(f.tensors[i].Name, f.tensors[i].Type, f.tensors[i].Dims, nil)
	}
	header, err := w.Header()
	if err != nil {
		return nil, fmt.Errorf("gguf: %s: the header of all shards as one: %w", f.shards[0].Path, err)
	}
	return header, nil
}
