package gguf

import (
	"fmt"
	"io"
	"slices"

	"outrider/layout"
)

// Limits on a header. The largest published ones (250,000 tokens and their
// merges) take about 15 MiB; these leave an order of magnitude, and bound what
// a hostile file can make the reader hold.
const (
	maxHeaderBytes = 256 << 20
	maxStringBytes = 16 << 20
	maxNameBytes   = 1 << 10
	maxKeyBytes    = 1<<16 - 1
	maxKeys        = 1 << 16
	maxTensors     = 1 << 20
	maxDims        = 4
	maxAlignment   = 16 << 20

	firstChunk = 64 << 10
	lastChunk  = 4 << 20
)

// cursor walks over the start of a file, reading it in growing chunks as far
// as it is asked to and never beyond. head holds the file's first bytes.
type cursor struct {
	file layout.File
	path string
	head []byte
	pos  int64
	big  bool // numbers are big-endian
}

func (c *cursor) left() int64 { return c.file.Size() - c.pos }

// label says what is being read; its text is made only when something is wrong.
type label struct {
	text string
	no   int    // -1: without a number
	name []byte // shown after text, if it is not nil
}

func named(text string) label            { return label{text: text, no: -1} }
func numbered(text string, no int) label { return label{text: text, no: no} }
func ofTensor(name []byte) label         { return label{text: "tensor", no: -1, name: name} }
func ofKey(name []byte) label            { return label{text: "metadata key", no: -1, name: name} }

func (l label) String() string {
	switch {
	case l.name != nil:
		return fmt.Sprintf("%s %q", l.text, l.name)
	case l.no >= 0:
		return fmt.Sprintf("%s %d", l.text, l.no)
	}
	return l.text
}

func (c *cursor) fail(sentinel error, format string, args ...any) error {
	return &FormatError{Format: "gguf", Path: c.path, Offset: c.pos, Reason: fmt.Sprintf(format, args...), Err: sentinel}
}

// need makes the next n bytes available in head.
func (c *cursor) need(n int64, what label) error {
	if n > c.left() {
		return c.fail(ErrTruncated, "%s needs %d bytes, the file has %d left; get the file again", what, n, max(c.left(), 0))
	}
	end := c.pos + n
	if end > maxHeaderBytes {
		return c.fail(ErrDamaged, "%s reaches beyond the limit of a header, %d bytes", what, maxHeaderBytes)
	}
	for int64(len(c.head)) < end {
		if err := c.grow(); err != nil {
			return err
		}
	}
	return nil
}

func (c *cursor) grow() error {
	have := int64(len(c.head))
	n := min(max(firstChunk, have), lastChunk, c.file.Size()-have)
	c.head = slices.Grow(c.head, int(n))
	got, err := c.file.ReadAt(c.head[have:have+n], have)
	if int64(got) < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("gguf: %s: read header at byte %d: %w", c.path, have, err)
	}
	c.head = c.head[:have+n]
	return nil
}

func (c *cursor) take(n int64, what label) ([]byte, error) {
	if err := c.need(n, what); err != nil {
		return nil, err
	}
	b := c.head[c.pos : c.pos+n]
	c.pos += n
	return b, nil
}

func (c *cursor) u32(what label) (uint32, error) {
	b, err := c.take(4, what)
	if err != nil {
		return 0, err
	}
	return orderOf(c.big).Uint32(b), nil
}

func (c *cursor) u64(what label) (uint64, error) {
	b, err := c.take(8, what)
	if err != nil {
		return 0, err
	}
	return orderOf(c.big).Uint64(b), nil
}

// skipString steps over a string and returns where its text lies.
func (c *cursor) skipString(limit int64, what label) (start, end int64, err error) {
	at := c.pos
	n, err := c.u64(what)
	if err != nil {
		return 0, 0, err
	}
	if n > uint64(limit) {
		c.pos = at
		return 0, 0, c.fail(ErrDamaged, "%s is a string of %d bytes, the limit is %d", what, n, limit)
	}
	if err := c.need(int64(n), what); err != nil {
		return 0, 0, err
	}
	start = c.pos
	c.pos += int64(n)
	return start, c.pos, nil
}

// text steps over a string that may not be empty, and returns where it lies.
func (c *cursor) text(limit int64, what label) (start, end int64, err error) {
	at := c.pos
	start, end, err = c.skipString(limit, what)
	if err == nil && start == end {
		c.pos = at
		err = c.fail(ErrDamaged, "%s is empty", what)
	}
	return start, end, err
}
