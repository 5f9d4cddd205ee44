package safetensors

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// scanner reads JSON text value by value, for headers and indexes of hundreds of
// thousands of names: a decoder that hands out tokens would allocate each of
// their brackets. Whoever reads an object looks after names that stand twice.
type scanner struct {
	text  []byte
	at    int
	wrong func(at int, reason string) error // makes the error of a place in text

	// What is being read, for messages: "tensor" and its name, or a kind alone.
	kind, name string
}

func (s *scanner) subject() string {
	if s.name == "" {
		return s.kind
	}
	return fmt.Sprintf("%s %q", s.kind, s.name)
}

func (s *scanner) fail(format string, args ...any) error {
	return s.wrong(s.at, s.subject()+" "+fmt.Sprintf(format, args...))
}

// failOf reports what is wrong with the value of a key.
func (s *scanner) failOf(key, format string, args ...any) error {
	return s.wrong(s.at, s.subject()+": "+key+" "+fmt.Sprintf(format, args...))
}

func (s *scanner) failJSON(reason string) error { return s.fail("is no valid JSON: %s", reason) }

// next skips white space and returns the byte that follows it, 0 at the end.
func (s *scanner) next() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// take skips white space and, if it follows, the byte c.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return false
	}
	s.at++
	return true
}

// seen shows the value that stands here, for messages: a bracket or the first
// characters of a number, a word or a string.
func (s *scanner) seen() string {
	const most = 40
	c := s.next()
	if c == 0 {
		return "nothing"
	}
	rest := s.text[s.at:min(len(s.text), s.at+most)]
	if c == '{' || c == '[' {
		return string(rest[:1])
	}
	if end := bytes.IndexAny(rest[1:], ",]}\n\""); end >= 0 {
		rest = rest[:end+1]
	}
	return string(bytes.TrimPrefix(rest, []byte(`"`)))
}

// object reads an object; value is called to read the value of each key, which is
// valid until it returns.
func (s *scanner) object(value func(key []byte) error) error {
	if !s.take('{') {
		if s.next() == 0 {
			return s.failJSON("it ends too early")
		}
		return s.fail("is %s, want an object", s.seen())
	}
	if s.take('}') {
		return nil
	}
	for {
		key, err := s.text1()
		if err != nil {
			return err
		}
		if len(key) > maxNameBytes {
			return s.fail("has a name of %d bytes, the limit is %d", len(key), maxNameBytes)
		}
		if !s.take(':') {
			return s.failJSON("a ':' is missing")
		}
		if err := value(key); err != nil {
			return err
		}
		switch {
		case s.take('}'):
			return nil
		case !s.take(','):
			return s.failJSON("a ',' or '}' is missing")
		}
	}
}

// text1 reads a string where nothing else may stand.
func (s *scanner) text1() ([]byte, error) {
	if s.next() != '"' {
		return nil, s.failJSON("a string is missing")
	}
	start := s.at
	for s.at++; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start+1 : s.at-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return nil, s.failJSON("a string holds a control character")
		}
	}
	return nil, s.failJSON("a string has no end")
}

// escaped reads the string that starts at start and holds a backslash.
func (s *scanner) escaped(start int) ([]byte, error) {
	for ; s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		if s.text[s.at] == '\\' {
			s.at++
		}
	}
	if s.at >= len(s.text) {
		s.at = len(s.text)
		return nil, s.failJSON("a string has no end")
	}
	s.at++
	var plain string
	if err := json.Unmarshal(s.text[start:s.at], &plain); err != nil {
		return nil, s.failJSON(err.Error())
	}
	return []byte(plain), nil
}

// str reads the string that is the value of a key.
func (s *scanner) str(key string) ([]byte, error) {
	if s.next() != '"' {
		return nil, s.failOf(key, "is %s, want a string", s.seen())
	}
	return s.text1()
}

// numbers reads an array of up to most whole numbers of 0 or more, and appends
// them to list.
func (s *scanner) numbers(key string, list []int64, most int) ([]int64, error) {
	if !s.take('[') {
		return nil, s.failOf(key, "is %s, want an array", s.seen())
	}
	if s.take(']') {
		return list, nil
	}
	for n := 0; ; n++ {
		s.next()
		start := s.at
		for s.at < len(s.text) && slices.Contains([]byte("+-.0123456789eE"), s.text[s.at]) {
			s.at++
		}
		number, err := strconv.ParseUint(string(s.text[start:s.at]), 10, 64)
		switch {
		case err != nil || number > math.MaxInt64 || (s.text[start] == '0' && s.at-start > 1):
			s.at = start
			return nil, s.failOf(key, "holds %s, want whole numbers of 0 or more", s.seen())
		case n == most:
			return nil, s.failOf(key, "has more than %d numbers", most)
		}
		list = append(list, int64(number))
		switch {
		case s.take(']'):
			return list, nil
		case !s.take(','):
			return nil, s.failJSON("a ',' or ']' is missing")
		}
	}
}

// skip reads past a value that is of no interest, and returns its text.
func (s *scanner) skip() (json.RawMessage, error) {
	var value json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(s.text[s.at:]))
	if err := dec.Decode(&value); err != nil {
		return nil, s.failJSON(err.Error())
	}
	s.at += int(dec.InputOffset())
	return value, nil
}

// end reports what follows the text's one value, other than white space.
func (s *scanner) end() error {
	if s.next() != 0 || s.at < len(s.text) {
		return s.fail("is followed by something: %.20q", s.text[s.at:])
	}
	return nil
}
