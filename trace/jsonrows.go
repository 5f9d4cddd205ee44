package trace

import (
	"fmt"
	"strconv"
)

// rowScanner walks over an array of arrays of numbers, such as
// [[3,1],[0,2]]. The text is valid JSON already, so only its kind is checked.
type rowScanner struct {
	text []byte
	at   int
}

// peek is the next byte that is no space, or 0 at the end.
func (s *rowScanner) peek() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// open steps into an array; false if there is none.
func (s *rowScanner) open() bool {
	if s.peek() != '[' {
		return false
	}
	s.at++
	return true
}

// more steps to the next element of the array at hand, or out of the array.
func (s *rowScanner) more(first bool) bool {
	switch c := s.peek(); {
	case c == ']':
		s.at++
		return false
	case c == ',' && !first:
		s.at++
		return true
	default:
		return c != 0
	}
}

// scalar is the text of the next element if that is no array, object or text.
func (s *rowScanner) scalar() []byte {
	s.peek()
	from := s.at
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ',', ']', ' ', '\t', '\r', '\n':
			return s.text[from:s.at]
		case '[', '{', '"':
			return nil
		}
		s.at++
	}
	return s.text[from:s.at]
}

// parseIDs reads one row of up to topK ids for each layer into dst, fills the
// rows up with -1, and notes in counts how many ids each row had.
func parseIDs(text []byte, topK int, counts []int, dst []int32) error {
	return eachRow(text, len(counts), func(s *rowScanner, layer int) error {
		row, n := dst[layer*topK:(layer+1)*topK], 0
		for first := true; s.more(first); first = false {
			if n == topK {
				return fmt.Errorf("more than top-k (%d) ids", topK)
			}
			word := s.scalar()
			id, err := strconv.ParseInt(string(word), 10, 32)
			if err != nil || id < 0 {
				return fmt.Errorf("entry %d is no expert id", n)
			}
			row[n] = int32(id)
			n++
		}
		counts[layer] = n
		for ; n < topK; n++ {
			row[n] = -1
		}
		return nil
	})
}

// parseWeights reads counts[layer] weights for each layer into dst, and fills
// the rows up with 0.
func parseWeights(text []byte, topK int, counts []int, dst []float32) error {
	return eachRow(text, len(counts), func(s *rowScanner, layer int) error {
		row, n := dst[layer*topK:(layer+1)*topK], 0
		for first := true; s.more(first); first = false {
			if n == counts[layer] {
				return fmt.Errorf("more weights than ids (%d)", counts[layer])
			}
			word := s.scalar()
			w, err := strconv.ParseFloat(string(word), 32)
			if err != nil {
				return fmt.Errorf("entry %d is no finite number", n)
			}
			row[n] = float32(w)
			n++
		}
		if n != counts[layer] {
			return fmt.Errorf("%d weights for %d ids", n, counts[layer])
		}
		clear(row[n:])
		return nil
	})
}

func eachRow(text []byte, layers int, row func(*rowScanner, int) error) error {
	s := &rowScanner{text: text}
	if !s.open() {
		return fmt.Errorf("want an array with %d rows", layers)
	}
	n := 0
	for ; s.more(n == 0); n++ {
		if n == layers {
			return fmt.Errorf("more than %d rows, want one a layer", layers)
		}
		if !s.open() {
			return fmt.Errorf("layer %d: want an array", n)
		}
		if err := row(s, n); err != nil {
			return fmt.Errorf("layer %d: %w", n, err)
		}
	}
	if n != layers {
		return fmt.Errorf("%d rows, want %d, one a layer", n, layers)
	}
	return nil
}
