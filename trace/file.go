package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of the zstd decoder. zstd's own tool needs more
// only for files made with --long or --ultra.
const maxWindow = 64 << 20

// packing is how a whole trace file is compressed.
type packing uint8

const (
	plain packing = iota
	gzipped
	zstandard
)

var packings = []struct {
	magic string
	kind  packing
}{
	{"\x1f\x8b", gzipped},
	{"\x28\xb5\x2f\xfd", zstandard},
}

// NewStream reads a trace of any form from r, told by its content: binary or
// JSON lines, plain or compressed with gzip or zstd. It reads what NewReader or
// NewJSONLReader say, and does not close r.
func NewStream(r io.Reader) (Stream, error) {
	src, err := Decompress(r)
	if err != nil {
		return nil, err
	}
	head, err := src.Peek(len(traceMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, sourceError(err, 0)
	}
	if string(head) == traceMagic {
		return NewReader(src)
	}
	text := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	if len(text) > 0 && text[0] == '{' {
		return NewJSONLReader(src)
	}
	return nil, fmt.Errorf("trace: %w: it begins with %q; looked for a binary trace (%q) and JSON lines ('{'), plain or in gzip or zstd",
		ErrNotTrace, head, traceMagic)
}

// Decompress reads what r holds: as it is, or unpacked where it is compressed
// with gzip or zstd, told by content. Its memory is bounded (zstd windows over 64
// MiB are refused). Damage of the packing is a *CorruptError, a cut
// io.ErrUnexpectedEOF. It starts no goroutine and does not close r.
func Decompress(r io.Reader) (*bufio.Reader, error) {
	src := bufio.NewReaderSize(r, 64<<10)
	kind, err := sniffPacking(src)
	if err != nil || kind == plain {
		return src, err
	}
	unpacked, err := unpack(src, kind)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(unpacked, 64<<10), nil
}

func sniffPacking(src *bufio.Reader) (packing, error) {
	head, err := src.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return plain, sourceError(err, 0)
	}
	for _, p := range packings {
		if strings.HasPrefix(string(head), p.magic) {
			return p.kind, nil
		}
	}
	return plain, nil
}

func unpack(src io.Reader, kind packing) (io.Reader, error) {
	if kind == gzipped {
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, sourceError(unpackError(err), 0)
		}
		return &unpacker{src: z}, nil
	}
	// One at a time: the decoder then starts no goroutine that would have to be stopped.
	z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, sourceError(unpackError(err), 0)
	}
	return &unpacker{src: z}, nil
}

// unpacker tells damage of a compressed file from a failure to read it.
type unpacker struct {
	src io.Reader
	at  int64
}

// Read is the decompressor's, with its errors in this package's words.
func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.src.Read(p)
	u.at += int64(n)
	var corrupt *CorruptError
	if err = unpackError(err); errors.As(err, &corrupt) {
		corrupt.Offset = u.at
	}
	return n, err
}

// unpackError leaves io.EOF, cuts and failures of the file itself as they are.
func unpackError(err error) error {
	var failed *os.PathError
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &failed) {
		return err
	}
	return &CorruptError{Reason: "cannot decompress: " + err.Error()}
}

// File is a trace file open for reading. For one goroutine at a time.
type File struct {
	Stream
	path string
	file *os.File
}

// OpenFile opens a trace file of any form; see NewStream. Errors of it and of
// Next name the file.
func OpenFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: open: %w", err)
	}
	s, err := NewStream(f)
	if err != nil {
		return nil, errors.Join(withPath(err, path), f.Close())
	}
	return &File{Stream: s, path: path, file: f}, nil
}

// Next reads the next token; see Stream.
func (f *File) Next(a *Activation) error {
	err := f.Stream.Next(a)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return withPath(err, f.path)
}

// Close closes the file. A second Close does nothing.
func (f *File) Close() error {
	if err := f.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("trace: close: %w", err)
	}
	return nil
}

// FileWriter is a trace file being written. For one goroutine at a time.
type FileWriter struct {
	sink   Sink
	packer packer // nil for a plain file
	file   *os.File
	closed bool
	err    error // of Close
}

// packer is a compressor.
type packer interface {
	io.WriteCloser
	Flush() error
}

// Create makes a new trace file; it is an error if there is one already. The
// name tells the form: .jsonl, .jsonl.gz and .jsonl.zst are JSON lines; any
// other is binary (.trace is the usual ending), compressed if it ends in .gz or
// .zst. When Create fails it leaves no file behind.
func Create(path string, h Header) (*FileWriter, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("trace: create: %w", err)
	}
	w := &FileWriter{file: f}
	if err := w.begin(path, h); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return w, nil
}

func (w *FileWriter) begin(path string, h Header) error {
	var err error
	name := path
	if w.packer, name, err = newPacker(path, w.file); err != nil {
		return err
	}
	var dst io.Writer = w.file
	if w.packer != nil {
		dst = w.packer
	}
	if strings.HasSuffix(name, ".jsonl") {
		w.sink, err = NewJSONLWriter(dst, h)
	} else {
		w.sink, err = NewWriter(dst, h)
	}
	return err
}

// newPacker compresses into w if the path's ending asks for it, else it is nil.
// It returns the path without that ending.
func newPacker(path string, w io.Writer) (packer, string, error) {
	if name, ok := strings.CutSuffix(path, ".gz"); ok {
		return gzip.NewWriter(w), name, nil
	}
	if name, ok := strings.CutSuffix(path, ".zst"); ok {
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, "", fmt.Errorf("trace: zstd: %w", err)
		}
		return z, name, nil
	}
	return nil, path, nil
}

// Append adds one token; see Sink.
func (w *FileWriter) Append(a *Activation) error { return w.sink.Append(a) }

// Flush brings everything appended so far to the operating system. In a
// compressed file each Flush costs size.
func (w *FileWriter) Flush() error {
	if w.closed {
		return w.err
	}
	if err := w.sink.Flush(); err != nil {
		return err
	}
	if w.packer != nil {
		if err := w.packer.Flush(); err != nil {
			return fmt.Errorf("trace: flush %s: %w", w.file.Name(), err)
		}
	}
	return nil
}

// Close ends the trace, syncs it and closes the file. A second Close does
// nothing but return the first one's error.
func (w *FileWriter) Close() error {
	if w.closed {
		return w.err
	}
	w.closed = true
	err := w.sink.Close()
	if w.packer != nil {
		err = errors.Join(err, w.packer.Close())
	}
	err = errors.Join(err, w.file.Sync(), w.file.Close())
	if err != nil {
		w.err = fmt.Errorf("trace: close %s: %w", w.file.Name(), err)
	}
	return w.err
}
