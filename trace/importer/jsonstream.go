package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxBetween is the most space and punctuation between values, and the longest
// key: json.Decoder looks over spaces again with each piece of file it gets.
const maxBetween = 1 << 20

// jsonStream walks over JSON that is too large to be held: it steps into objects
// and arrays and decodes what lies in them piece by piece, each of at most
// maxLine bytes.
type jsonStream struct {
	file *file
	in   *metered
	dec  *json.Decoder
	what string // for messages
}

// metered lends so many bytes of a reader, and none any more once they did not do.
type metered struct {
	src   io.Reader
	left  int
	spent bool
}

var errTooLong = fmt.Errorf("a value is longer than %d bytes, or the space between values than %d", maxLine, maxBetween)

func (m *metered) Read(p []byte) (int, error) {
	if m.spent = m.spent || m.left <= 0; m.spent {
		return 0, errTooLong
	}
	n, err := m.src.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

// eachJSON calls fn at the start of each value of a file: of those in its one
// array, or of those that follow one another, as JSON lines do. Fn must take the
// value.
func (f *file) eachJSON(what string, fn func(s *jsonStream) error) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	if bom, _ := r.Peek(3); string(bom) == "\xef\xbb\xbf" {
		_, _ = r.Discard(3) // they were there
	}
	first, err := firstByte(r)
	if err != nil {
		return endOf(f, place{}, err, what)
	}
	in := &metered{src: r}
	s := &jsonStream{file: f, in: in, dec: json.NewDecoder(in), what: what}
	if first == '[' {
		err = s.elements(func(int) error { return fn(s) })
	}
	for err == nil && s.more() {
		err = fn(s)
	}
	if err != nil {
		return err
	}
	if _, err := s.dec.Token(); !errors.Is(err, io.EOF) {
		return s.failed(err)
	}
	return nil
}

// firstByte is the first byte that is no space; everything stays to be read.
func firstByte(r *reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if c > ' ' {
			return c, r.UnreadByte()
		}
	}
}

// at is where the stream stands.
func (s *jsonStream) at() place { return place{offset: s.dec.InputOffset()} }

func (s *jsonStream) damaged(format string, args ...any) error {
	return s.file.damaged(s.at(), format, args...)
}

// more reports whether another value follows.
func (s *jsonStream) more() bool {
	s.in.left = maxBetween
	return s.dec.More()
}

// value decodes the next value into v; what v already holds is its own to reset.
func (s *jsonStream) value(v any) error {
	s.in.left = maxLine
	if err := s.dec.Decode(v); err != nil {
		return s.failed(err)
	}
	return nil
}

// skip passes over the next value.
func (s *jsonStream) skip() error {
	var raw json.RawMessage
	return s.value(&raw)
}

// count passes over an array and counts its elements.
func (s *jsonStream) count() (n int64, err error) {
	err = s.elements(func(int) error {
		n++
		return s.skip()
	})
	return n, err
}

// fields steps through the object at hand: fn must take the value of each key.
func (s *jsonStream) fields(fn func(key string) error) error {
	if err := s.delim('{'); err != nil {
		return err
	}
	for s.more() {
		t, err := s.dec.Token()
		if err != nil {
			return s.failed(err)
		}
		key, ok := t.(string)
		if !ok {
			return s.damaged("an object's key is %v, want text", t)
		}
		s.more() // as far as the colon
		if err := fn(key); err != nil {
			return err
		}
	}
	return s.delim('}')
}

// elements steps through the array at hand: fn must take each value.
func (s *jsonStream) elements(fn func(i int) error) error {
	if err := s.delim('['); err != nil {
		return err
	}
	for i := 0; s.more(); i++ {
		if err := fn(i); err != nil {
			return err
		}
	}
	return s.delim(']')
}

func (s *jsonStream) delim(want json.Delim) error {
	s.in.left = maxBetween
	t, err := s.dec.Token()
	if err != nil {
		return s.failed(err)
	}
	if t != want {
		return s.damaged("want %q of %s, got %.40q", want.String(), s.what, fmt.Sprint(t))
	}
	return nil
}

// failed says what the decoder stumbled over, and where.
func (s *jsonStream) failed(err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return endOf(s.file, s.at(), err, s.what)
	case errors.Is(err, errTooLong):
		return s.damaged("%v", err)
	case errors.As(err, &syntax):
		return s.file.damaged(place{offset: syntax.Offset}, "%s: %v", s.what, err)
	case err == nil:
		return s.damaged("something follows %s", s.what)
	case isJSONKind(err):
		return s.damaged("%s: %v", s.what, err)
	}
	return s.file.failed(err)
}

// isJSONKind reports an error of a value that is valid JSON, but not what was
// wanted.
func isJSONKind(err error) bool {
	var kind *json.UnmarshalTypeError
	var rows *rowsError
	return errors.As(err, &kind) || errors.As(err, &rows)
}
