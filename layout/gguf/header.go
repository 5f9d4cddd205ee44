package gguf

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"

	"outrider/layout"
)

const (
	magic            = "GGUF"
	fixedHeaderBytes = 24
	defaultAlignment = 32
	keyAlignment     = "general.alignment"
)

// shard is the parsed header of one file.
type shard struct {
	file    layout.CheckpointFile
	version uint32
	big     bool // big-endian
	keys    []string
	meta    map[string]Value
	tensors []Tensor
	said    int // split.tensors.count, -1 if absent; set by checkSplit
}

// readShard opens one file, reads its header, and closes it.
func readShard(fsys layout.FS, path string) (s *shard, err error) {
	err = withFile(fsys, path, func(file layout.File) error {
		s, err = parseShard(file, path)
		return err
	})
	return s, err
}

// withFile opens a file for do and closes it again.
func withFile(fsys layout.FS, path string, do func(layout.File) error) error {
	file, err := fsys.Open(path, layout.Buffered)
	if err != nil {
		return fmt.Errorf("gguf: open %s: %w", path, err)
	}
	err = do(file)
	if cerr := file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("gguf: close %s: %w", path, cerr)
	}
	return err
}

func parseShard(file layout.File, path string) (*shard, error) {
	c := &cursor{file: file, path: path}
	s, tensors, err := parseStart(c)
	if err != nil {
		return nil, err
	}
	if err := s.parseTensors(c, tensors); err != nil {
		return nil, err
	}
	if err := s.finish(c); err != nil {
		return nil, err
	}
	return s, nil
}

// parseStart reads as far as the end of the metadata; tensors is the number of
// tensors that follow.
func parseStart(c *cursor) (s *shard, tensors int, err error) {
	s = &shard{file: layout.CheckpointFile{Path: c.path, Size: c.file.Size()}}
	tensors, keys, err := s.parseFixed(c)
	if err != nil {
		return nil, 0, err
	}
	s.big = c.big
	return s, tensors, s.parseMeta(c, keys)
}

// finish finds the start of the tensor data, sums up what stands before it, and
// checks where the tensors lie.
func (s *shard) finish(c *cursor) error {
	align, err := s.alignment()
	if err != nil {
		return err
	}
	// A shard with metadata only may end without the padding.
	start := (c.pos + align - 1) / align * align
	if len(s.tensors) == 0 {
		start = min(start, c.file.Size())
	}
	if err := c.need(start-c.pos, named("padding before the tensor data")); err != nil {
		return err
	}
	sum := sha256.Sum256(c.head[:start])
	s.file.Header = hex.EncodeToString(sum[:])
	return s.place(start, align)
}

// parseFixed reads magic, version and the two counts, in this order, and
// checks the counts against what the file could hold.
func (s *shard) parseFixed(c *cursor) (tensors, keys int, err error) {
	n := min(int64(len(magic)), c.left())
	if n == 0 {
		return 0, 0, c.fail(ErrTruncated, "it is empty; get the file again")
	}
	start, err := c.take(n, named("magic"))
	if err != nil {
		return 0, 0, err
	}
	if !bytes.Equal(start, []byte(magic)) {
		c.pos = 0
		if string(start) == "\x00\x00\x00\x00" {
			return 0, 0, c.fail(ErrNotGGUF, "it starts with zeros, as an unfinished download does; get the file again")
		}
		return 0, 0, c.fail(ErrNotGGUF, "it starts with %q, want %q", start, magic)
	}
	if s.version, err = c.u32(named("version")); err != nil {
		return 0, 0, err
	}
	// The version's lower half is never zero: it tells the byte order of all that follows.
	if s.version&0xffff == 0 && s.version != 0 {
		s.version, c.big = bits.ReverseBytes32(s.version), true
	}
	if s.version != 2 && s.version != 3 {
		return 0, 0, c.fail(ErrVersion, "version %d, want 2 or 3; convert the model again with current tools", s.version)
	}
	if tensors, err = c.count("tensor count", maxTensors, 8+1+4+4+8); err != nil {
		return 0, 0, err
	}
	if keys, err = c.count("metadata count", maxKeys, 8+1+4+1); err != nil {
		return 0, 0, err
	}
	return tensors, keys, nil
}

// count reads the number of entries that take at least least bytes each.
func (c *cursor) count(what string, limit uint64, least int64) (int, error) {
	at := c.pos
	n, err := c.u64(named(what))
	if err != nil {
		return 0, err
	}
	rest := max(c.file.Size()-fixedHeaderBytes, 0)
	switch {
	case n > limit:
		c.pos = at
		return 0, c.fail(ErrDamaged, "%s is %d, the limit is %d", what, n, limit)
	case int64(n)*least > rest:
		c.pos = at
		return 0, c.fail(ErrTruncated, "%s is %d, which needs at least %d bytes, the file has %d; get the file again", what, n, int64(n)*least, rest)
	}
	return int(n), nil
}

func (s *shard) alignment() (int64, error) {
	v, ok := s.meta[keyAlignment]
	if !ok {
		return defaultAlignment, nil
	}
	n, ok := v.Uint()
	if !ok || n == 0 || n&(n-1) != 0 || n > maxAlignment {
		return 0, wrong(ErrDamaged, s.file.Path, "%s is %v (%v), want a power of two up to %d", keyAlignment, v, v.Kind(), maxAlignment)
	}
	return int64(n), nil
}
