package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"outrider/layout"
)

// Limits of counts published as one JSON object: what decodes to many times its
// size as text must not be large.
const (
	maxJSONBytes = 64 << 20
	maxJSONKeys  = 1 << 16
)

// decodeJSON reads the file as one JSON value.
func (f *file) decodeJSON(v any) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer r.Close() // nothing was written
	b, err := io.ReadAll(io.LimitReader(r, maxJSONBytes+1))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return f.damaged(place{offset: int64(len(b))}, "the compressed file was cut off")
	case err != nil:
		return f.failed(err)
	case len(b) > maxJSONBytes:
		return f.damaged(place{offset: maxJSONBytes}, "the file has more than %d bytes, which is as much as is read of this form", maxJSONBytes)
	}
	err = json.Unmarshal(bytes.TrimPrefix(b, []byte("\xef\xbb\xbf")), v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return f.damaged(place{offset: syntax.Offset}, "it is not JSON: %v", err)
	case errors.As(err, &kind):
		return f.damaged(place{offset: kind.Offset}, "%v", err)
	case err != nil:
		return f.damaged(place{}, "%v", err)
	}
	return nil
}

// entry is one key of an object and its value.
type entry[T any] struct {
	key   string
	value T
}

// entries is a JSON object in the order of the file, up to maxJSONKeys keys.
type entries[T any] []entry[T]

// UnmarshalJSON reads the object; a key that is there twice is an error.
func (o *entries[T]) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("found %.20q, want an object", b)
	}
	*o = entries[T]{}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		e := entry[T]{key: t.(string)}
		if seen[e.key] {
			return fmt.Errorf("key %.80q is there twice", e.key)
		}
		if len(*o) == maxJSONKeys {
			return fmt.Errorf("an object has more than %d keys", maxJSONKeys)
		}
		if err := dec.Decode(&e.value); err != nil {
			return fmt.Errorf("in %.80q: %w", e.key, err)
		}
		seen[e.key] = true
		*o = append(*o, e)
	}
	return nil
}

// elements is a JSON list of something a layer each, up to as many as a model
// may have layers.
type elements[T any] []T

// UnmarshalJSON reads the list.
func (l *elements[T]) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("found %.20q, want a list", b)
	}
	*l = elements[T]{}
	for dec.More() {
		if len(*l) == layout.MaxLayers {
			return fmt.Errorf("a list has more than %d elements, which is more than a model has layers", layout.MaxLayers)
		}
		var v T
		if err := dec.Decode(&v); err != nil {
			return fmt.Errorf("element %d: %w", len(*l), err)
		}
		*l = append(*l, v)
	}
	return nil
}

// countRow is a JSON list of counts, one for each expert.
type countRow []float64

// UnmarshalJSON reads the list. A count that is null is not 0.
func (r *countRow) UnmarshalJSON(b []byte) error {
	if bytes.Contains(b, []byte("null")) {
		return errors.New("a count is null")
	}
	return json.Unmarshal(b, (*[]float64)(r))
}

// plain is rows as a table has them.
func plain[S ~[]countRow](rows S) [][]float64 {
	all := make([][]float64, len(rows))
	for i, row := range rows {
		all[i] = row
	}
	return all
}

// tally is {"expert": count}: a JSON object that leaves unused experts out. It
// stays as small as its text until the shape is known.
type tally struct {
	uses  []use
	pairs bool // the keys name pairs of experts: "3,7"
}

type use struct {
	expert int
	count  float64
}

// UnmarshalJSON reads the object.
func (y *tally) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("found %.20q, want an object of counts", b)
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		key := t.(string)
		var count *float64
		if err := dec.Decode(&count); err != nil {
			return fmt.Errorf("expert %.20q: %w", key, err)
		}
		if count == nil {
			return fmt.Errorf("expert %.20q: the count is null", key)
		}
		expert, ok := digits([]byte(key))
		if !ok {
			if !isPair([]byte(key)) {
				return fmt.Errorf("key %.40q names no expert", key)
			}
			y.pairs, y.uses = true, nil
		}
		if !y.pairs {
			y.uses = append(y.uses, use{expert, *count})
		}
	}
	return nil
}

func isPair(key []byte) bool {
	a, b, found := bytes.Cut(key, []byte(","))
	_, okA := digits(a)
	_, okB := digits(b)
	return found && okA && okB
}

// total is how many uses the tally counts.
func (y *tally) total() (sum float64) {
	for _, u := range y.uses {
		sum += u.count
	}
	return sum
}

// row is the tally with a number for each expert.
func (y *tally) row(experts int) ([]float64, error) {
	if y.pairs {
		return nil, errors.New("the keys name pairs of experts")
	}
	row, seen := make([]float64, experts), make([]bool, experts)
	for _, u := range y.uses {
		if u.expert < 0 || u.expert >= experts {
			return nil, fmt.Errorf("expert %d is outside 0 to %d", u.expert, experts-1)
		}
		if seen[u.expert] {
			return nil, fmt.Errorf("expert %d is counted twice", u.expert)
		}
		row[u.expert], seen[u.expert] = u.count, true
	}
	return row, nil
}

// digits is a number of up to nine digits without sign or leading zeros.
func digits(b []byte) (n int, ok bool) {
	if len(b) == 0 || len(b) > 9 || (b[0] == '0' && len(b) > 1) {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// layerNumber is a key that names a layer.
func layerNumber(key string) (int, error) {
	n, ok := digits([]byte(key))
	if !ok {
		return 0, fmt.Errorf("key %s names no layer", strconv.Quote(key))
	}
	return n, nil
}
