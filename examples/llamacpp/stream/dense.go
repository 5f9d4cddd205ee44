package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"unsafe"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/llama"
	"outrider/layout/gguf"
)

// loadBytes is how much of a dense tensor is read at once.
const loadBytes = 4 << 20

// loader reads dense tensors piece by piece, and leaves nothing of them in the page
// cache, which would hold them twice.
type loader struct {
	file  *gguf.File
	buf   []byte
	shard int
	from  *os.File // of shard
}

// fill reads a tensor into llama.cpp's memory.
func (l *loader) fill(ctx context.Context, t gguf.Tensor, fill llama.FillFunc) error {
	if err := l.open(t.Shard); err != nil {
		return err
	}
	for at := int64(0); at < t.Bytes; at += int64(len(l.buf)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := l.buf[:min(int64(len(l.buf)), t.Bytes-at)]
		if _, err := io.ReadFull(io.NewSectionReader(l.from, t.Offset+at, int64(len(b))), b); err != nil {
			return fmt.Errorf("read tensor %q at %d: %w", t.Name, t.Offset+at, err)
		}
		fill(b, at)
	}
	return forget(l.from, t.Offset, t.Bytes)
}

func (l *loader) open(shard int) error {
	if l.from != nil && l.shard == shard {
		return nil
	}
	if err := l.close(); err != nil {
		return err
	}
	f, err := os.Open(l.file.Shards()[shard].Path)
	if err != nil {
		return err
	}
	l.from, l.shard = f, shard
	return nil
}

func (l *loader) close() error {
	if l.from == nil {
		return nil
	}
	err := l.from.Close()
	l.from = nil
	return err
}

// mapping is a model's files in memory, read-only, by shard.
type mapping struct{ shards [][]byte }

// mapFiles maps each shard. No page of it is read before it is used.
func mapFiles(file *gguf.File) (*mapping, error) {
	m := &mapping{}
	for _, s := range file.Shards() {
		b, err := mapFile(s.Path, s.Size)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("map %s: %w", s.Path, err), m.close())
		}
		m.shards = append(m.shards, b)
	}
	return m, nil
}

// place points a dense tensor into the mapping.
func (m *mapping) place(t *ggml.Tensor, source gguf.Tensor) error {
	t.Data = unsafe.Pointer(&m.shards[source.Shard][source.Offset])
	return nil
}

func (m *mapping) close() error {
	if m == nil {
		return nil
	}
	var errs []error
	for _, b := range m.shards {
		errs = append(errs, unmapFile(b))
	}
	m.shards = nil
	return errors.Join(errs...)
}
