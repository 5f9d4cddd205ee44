package safetensors

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"outrider/layout"
)

const (
	lengthBytes    = 8
	maxHeaderBytes = 100_000_000 // the limit of the format's own reader
)

// Tensor is one entry of the table.
type Tensor struct {
	Name   string
	DType  string  // as the file calls it: "BF16"
	Shape  []int64 // slowest first; empty for a single number; shared, do not change
	Offset int64   // of the first byte, from the start of the file
	Bytes  int64   // may be 0
}

// File is the header of one file. Immutable and safe for concurrent use.
type File struct {
	fsys    layout.FS
	source  layout.CheckpointFile
	meta    map[string]string
	tensors []Tensor
	byName  map[string]int
}

// Open reads the header of the file at path. The file does not stay open.
// Errors of fsys are wrapped; see FormatError for all others.
func Open(fsys layout.FS, path string) (*File, error) {
	file, err := fsys.Open(path, layout.Buffered)
	if err != nil {
		return nil, fmt.Errorf("safetensors: open %s: %w", path, err)
	}
	f := &File{fsys: fsys, source: layout.CheckpointFile{Path: path, Size: file.Size()}}
	err = f.parse(file)
	if cerr := file.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("safetensors: close %s: %w", path, cerr)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Source is the file itself: path, size, and the digest of its header.
func (f *File) Source() layout.CheckpointFile { return f.source }

// Metadata is what the file tells about itself, most often only its origin.
func (f *File) Metadata() map[string]string { return maps.Clone(f.meta) }

// Tensors lists the tensors in the order of the header.
func (f *File) Tensors() []Tensor { return slices.Clone(f.tensors) }

// Tensor looks up a tensor by its full name.
func (f *File) Tensor(name string) (Tensor, bool) {
	i, ok := f.byName[name]
	if !ok {
		return Tensor{}, false
	}
	return f.tensors[i], true
}

func (f *File) parse(file layout.File) error {
	head, err := f.header(file)
	if err != nil {
		return err
	}
	sum := sha256.New()
	sum.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(head))))
	sum.Write(head)
	f.source.Header = hex.EncodeToString(sum.Sum(nil))
	if err := f.parseTable(head); err != nil {
		return err
	}
	return f.place(lengthBytes + int64(len(head)))
}

// header reads the length and the JSON text.
func (f *File) header(file layout.File) ([]byte, error) {
	if f.source.Size < lengthBytes {
		return nil, f.wrong(ErrNotSafetensors, 0, "it has %d bytes, fewer than the length of a header takes", f.source.Size)
	}
	var length [lengthBytes]byte
	if err := f.read(file, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeaderBytes || n < 2 {
		return nil, f.wrong(ErrNotSafetensors, 0, "the header's length would be %d, want 2 to %d", n, maxHeaderBytes)
	}
	if left := f.source.Size - lengthBytes; int64(n) > left {
		return nil, f.wrong(ErrTruncated, lengthBytes, "the header has %d bytes, the file %d more; get the file again", n, left)
	}
	head := make([]byte, n)
	if err := f.read(file, head, lengthBytes); err != nil {
		return nil, err
	}
	if head[0] != '{' {
		return nil, f.wrong(ErrNotSafetensors, lengthBytes, "the header starts with %q, want '{'", head[0])
	}
	if !utf8.Valid(head) {
		return nil, f.wrong(ErrDamaged, lengthBytes, "the header is not UTF-8")
	}
	return head, nil
}

func (f *File) read(file io.ReaderAt, p []byte, off int64) error {
	return readAt(file, f.source.Path, p, off)
}

func readAt(file io.ReaderAt, path string, p []byte, off int64) error {
	n, err := file.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("safetensors: %s: read %d bytes at byte %d: got %d: %w", path, len(p), off, n, err)
}

func (f *File) wrong(sentinel error, offset int64, format string, args ...any) error {
	return wrong(sentinel, f.source.Path, offset, format, args...)
}
