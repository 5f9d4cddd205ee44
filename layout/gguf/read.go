package gguf

import (
	"fmt"
	"io"

	"outrider/layout"
)

// ReadTensor reads a whole tensor of this checkpoint into dst, whose length
// must be t.Bytes. It opens the shard through the page cache, reads, and closes
// it again: right for dense weights that are read once at start. A shard whose
// size is not what Open saw is layout.ErrSourceChanged.
func (f *File) ReadTensor(t Tensor, dst []byte) error {
	own, ok := f.Tensor(t.Name)
	if !ok {
		return fmt.Errorf("gguf: %s: %w: %q", f.shards[0].Path, ErrNoTensor, t.Name)
	}
	if int64(len(dst)) != own.Bytes {
		return fmt.Errorf("gguf: read tensor %q: buffer of %d bytes, want %d", t.Name, len(dst), own.Bytes)
	}
	shard := f.shards[own.Shard]
	return withFile(f.fsys, shard.Path, func(file layout.File) error { return readTensor(file, shard, own, dst) })
}

func readTensor(file layout.File, shard layout.CheckpointFile, t Tensor, dst []byte) error {
	if file.Size() != shard.Size {
		return wrong(layout.ErrSourceChanged, shard.Path, "it has %d bytes, had %d; open the checkpoint again", file.Size(), shard.Size)
	}
	n, err := file.ReadAt(dst, t.Offset)
	if n == len(dst) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("gguf: %s: read tensor %q at byte %d: %d of %d bytes: %w", shard.Path, t.Name, t.Offset, n, len(dst), err)
}
