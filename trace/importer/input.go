package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"outrider/trace"
)

// Limits of what is held in memory.
const (
	// MaxHeld is the most expert ids held at once for forms that keep the layers
	// of a sequence apart: about 45,000 tokens of 58 layers, top 8, a gigabyte less than that.
	MaxHeld = 1 << 26
	// maxWhole is the largest file that is read as a whole, unpacked.
	maxWhole = 1 << 30
	// maxLine is the longest line.
	maxLine = 64 << 20
	// peekBytes is how much of a file tells its form.
	peekBytes = 64 << 10
)

// input is the files of one recording and what the caller told about it.
type input struct {
	files  []*file
	folder string // the folder that was named, or ""
	opts   Options
	notes  []string
}

// newInput lists the files: those named, or those in the one folder named.
func newInput(paths []string, o Options) (*input, error) {
	if len(paths) == 0 {
		return nil, errors.New("importer: no file was named")
	}
	in := &input{opts: o}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("importer: %w", err)
		}
		if !info.IsDir() {
			in.files = append(in.files, &file{path})
			continue
		}
		if len(paths) > 1 {
			return nil, fmt.Errorf("importer: %s is a folder: name one folder, or files", path)
		}
		in.folder = path
		if err := in.list(path); err != nil {
			return nil, err
		}
	}
	return in, nil
}

// list takes the files of a folder in the order of their names; hidden files,
// folders and texts for people are passed over.
func (in *input) list(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("importer: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if e.Type().IsRegular() && !strings.HasPrefix(name, ".") && !strings.HasSuffix(strings.ToLower(name), ".md") {
			in.files = append(in.files, &file{filepath.Join(folder, name)})
		}
	}
	if len(in.files) == 0 {
		return fmt.Errorf("importer: the folder %s holds no files", folder)
	}
	return nil
}

// note tells something about what was read.
func (in *input) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(in.notes, text) {
		in.notes = append(in.notes, text)
	}
}

// sourceText says where a trace came from: the form and the files' names.
func (in *input) sourceText(form string) string {
	text := fmt.Sprintf("imported from %s: %s", form, strings.ToValidUTF8(in.files[0].name(), "?"))
	if more := len(in.files) - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// peek is what a form is told by.
type peek struct {
	names []string // base names of the files, compression endings cut off
	head  []byte   // the first bytes of the first file, unpacked
	whole bool     // head is all of it
}

func (in *input) peek() (*peek, error) {
	p := &peek{}
	for _, f := range in.files {
		p.names = append(p.names, f.name())
	}
	r, err := in.files[0].open()
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written
	p.head = make([]byte, peekBytes)
	n, err := io.ReadFull(r, p.head)
	p.head = p.head[:n]
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		p.whole = true
	} else if err != nil {
		return nil, in.files[0].failed(err)
	}
	return p, nil
}

// line is the first line that is not blank, and whether it is whole.
func (p *peek) line() (line []byte, whole bool) {
	text := bytes.TrimLeft(bytes.TrimPrefix(p.head, []byte("\xef\xbb\xbf")), " \t\r\n")
	line, _, found := bytes.Cut(text, []byte("\n"))
	return bytes.TrimSpace(line), found || p.whole
}

// file is one file of the input.
type file struct{ path string }

// name is the file's base name without an ending that says how it is packed.
func (f *file) name() string {
	name := filepath.Base(f.path)
	return strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
}

// place is where in a file something is: a line from 1, or, if that is 0, an
// offset in bytes of the unpacked content.
type place struct {
	line   int
	offset int64
}

func (at place) String() string {
	if at.line > 0 {
		return fmt.Sprintf("line %d", at.line)
	}
	return fmt.Sprintf("byte %d", at.offset)
}

// damaged reports what is wrong with a file, and where.
func (f *file) damaged(at place, format string, args ...any) error {
	return &trace.CorruptError{Path: f.path, Line: at.line, Offset: at.offset, Reason: fmt.Sprintf(format, args...)}
}

// failed reports that a file could not be read or unpacked.
func (f *file) failed(err error) error {
	var corrupt *trace.CorruptError
	if errors.As(err, &corrupt) && corrupt.Path == "" {
		corrupt.Path = f.path
		return err
	}
	return fmt.Errorf("read %s: %w", f.path, err)
}

// reader is a file's content, unpacked.
type reader struct {
	*bufio.Reader
	file *os.File
}

// open opens a file from its start; it may be opened several times.
func (f *file) open() (*reader, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return nil, fmt.Errorf("importer: %w", err)
	}
	r, err := trace.Decompress(file)
	if err != nil {
		return nil, errors.Join(f.failed(err), file.Close())
	}
	return &reader{r, file}, nil
}

func (r *reader) Close() error { return r.file.Close() }

// whole is all of a file's content, unpacked.
func (f *file) whole() ([]byte, error) {
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written
	b, err := io.ReadAll(io.LimitReader(r, maxWhole+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, f.damaged(place{offset: int64(len(b))}, "the compressed file was cut off")
	case err != nil:
		return nil, f.failed(err)
	case len(b) > maxWhole:
		return nil, f.damaged(place{offset: maxWhole}, "the file has more than %d bytes, which is as much as is read of this form", maxWhole)
	}
	return b, nil
}

// eachLine calls fn with each line that is not blank, without its end. The line
// is valid until fn returns. It stops at the first error of fn, and reports a
// line that is too long, a cut and a failure to read.
func (f *file) eachLine(fn func(at place, line []byte) error) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, peekBytes), maxLine)
	at := place{}
	for scan.Scan() {
		at.line++
		if line := bytes.TrimSpace(scan.Bytes()); len(line) > 0 {
			if at.line == 1 {
				line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
			}
			if err := fn(at, line); err != nil {
				return err
			}
		}
	}
	at.line++
	switch err := scan.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return f.damaged(at, "the line is longer than %d bytes", maxLine)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return f.damaged(at, "the compressed file was cut off")
	case err != nil:
		return f.failed(err)
	}
	return nil
}
