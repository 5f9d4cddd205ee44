package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	maxStorage = 1 << 30 // bytes
	// maxRatio is more than deflate can pack: a larger claim is no true size.
	maxRatio = 1100
	// maxReads is how often as much as the whole file may be read for tensors.
	maxReads = 16
)

// legacyMagic starts the pickle that old files begin with.
var legacyMagic = []byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")

// File is an open file. Tensors are read when asked for. For one goroutine at a
// time; the values are shared, so do not change them.
type File struct {
	Root    any
	size    int64
	spent   int64 // bytes of storages read so far
	prefix  string
	big     bool
	entries map[string]*zip.File
}

// Open reads the pickle of the file that r holds. r must stay open as long as
// tensors are read. Errors: ErrNotTorch, ErrLegacy, ErrRefused and ErrDamaged, as
// an *Error, and those of r.
func Open(r io.ReaderAt, size int64) (*File, error) {
	head := make([]byte, len(legacyMagic))
	if n, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the file's start: %w", err)
	} else if bytes.Equal(head[:n], legacyMagic) {
		return nil, fail(ErrLegacy, "load it with PyTorch and save it again with torch.save, which has written zip files since version 1.6")
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fail(ErrNotTorch, "it is no zip file: %v", err)
	}
	f := &File{size: size, entries: map[string]*zip.File{}}
	var pickle *zip.File
	for _, e := range z.File {
		if path.Base(e.Name) == "data.pkl" && strings.Count(e.Name, "/") == 1 {
			if pickle != nil {
				return nil, fail(ErrDamaged, "it has two pickles, %q and %q", pickle.Name, e.Name)
			}
			pickle, f.prefix = e, path.Dir(e.Name)
		}
		if _, twice := f.entries[e.Name]; twice {
			return nil, fail(ErrDamaged, "it has the entry %q twice", e.Name)
		}
		f.entries[e.Name] = e
	}
	if pickle == nil {
		return nil, fail(ErrNotTorch, "the zip file has no <name>/data.pkl among its %d entries", len(z.File))
	}
	if err := f.byteOrder(); err != nil {
		return nil, err
	}
	code, err := f.read(pickle, maxPickle)
	if err != nil {
		return nil, err
	}
	m := &machine{entry: pickle.Name, code: code, limit: maxValues}
	if f.Root, err = m.run(); err != nil {
		return nil, err
	}
	return f, nil
}

func fail(sentinel error, format string, args ...any) error {
	return &Error{Reason: fmt.Sprintf(format, args...), Err: sentinel}
}

func (f *File) byteOrder() error {
	e := f.entries[f.prefix+"/byteorder"]
	if e == nil {
		return nil
	}
	text, err := f.read(e, 16)
	if err != nil {
		return err
	}
	switch order := strings.TrimSpace(string(text)); order {
	case "little":
	case "big":
		f.big = true
	default:
		return fail(ErrDamaged, "%s is %q, want little or big", e.Name, order)
	}
	return nil
}

// read is the content of an entry of at most most bytes.
func (f *File) read(e *zip.File, most uint64) ([]byte, error) {
	n := e.UncompressedSize64
	switch {
	case n > most:
		return nil, fail(ErrDamaged, "%s has %d bytes, the limit is %d", e.Name, n, most)
	case e.CompressedSize64 > uint64(f.size) || n > e.CompressedSize64*maxRatio+64:
		return nil, fail(ErrDamaged, "%s claims %d bytes in %d, which the file of %d cannot hold", e.Name, n, e.CompressedSize64, f.size)
	}
	r, err := e.Open()
	if err != nil {
		return nil, fail(ErrDamaged, "%s: %v", e.Name, err)
	}
	defer r.Close() // nothing was written
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, fail(ErrDamaged, "%s: %v", e.Name, err)
	}
	// The checksum is looked at when the entry's end is read.
	if _, err := io.ReadFull(r, make([]byte, 1)); !errors.Is(err, io.EOF) {
		return nil, fail(ErrDamaged, "%s goes on behind its %d bytes: %v", e.Name, n, err)
	}
	return b, nil
}
