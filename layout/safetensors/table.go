package safetensors

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

const (
	metadataKey  = "__metadata__"
	maxDims      = 32
	maxNameBytes = 4 << 10
)

// table reads the header's object, token by token: names that stand twice, which
// a decoder into a map would not see, are refused.
type table struct {
	*File
	dec *json.Decoder
}

func (f *File) parseTable(head []byte) error {
	t := &table{f, json.NewDecoder(bytes.NewReader(head))}
	t.dec.UseNumber()
	if err := t.object("the header", t.entry); err != nil {
		return err
	}
	if rest := bytes.Trim(head[t.dec.InputOffset():], " "); len(rest) > 0 {
		return t.fail("something follows the header's object: %.20q", rest)
	}
	return nil
}

// fail reports damage at the place that was reached.
func (t *table) fail(format string, args ...any) error {
	return t.wrong(ErrDamaged, lengthBytes+t.dec.InputOffset(), format, args...)
}

func (t *table) token(what string) (json.Token, error) {
	tok, err := t.dec.Token()
	if err != nil {
		return nil, t.fail("%s is no valid JSON: %v", what, err)
	}
	return tok, nil
}

// object reads an object; value is called to read the value of each key.
func (t *table) object(what string, value func(key string) error) error {
	tok, err := t.token(what)
	if err != nil {
		return err
	}
	if tok != json.Delim('{') {
		return t.fail("%s is %v, want an object", what, tok)
	}
	seen := map[string]struct{}{}
	for {
		tok, err := t.token(what)
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok { // the object's end: between keys the decoder accepts nothing else
			return nil
		}
		if len(key) > maxNameBytes {
			return t.fail("%s has a name of %d bytes, the limit is %d", what, len(key), maxNameBytes)
		}
		if _, twice := seen[key]; twice {
			return t.fail("%s has %q twice", what, key)
		}
		seen[key] = struct{}{}
		if err := value(key); err != nil {
			return err
		}
	}
}

// entry reads the value of one key of the header.
func (t *table) entry(name string) error {
	if name == metadataKey {
		return t.metadata()
	}
	tensor := Tensor{Name: name, Bytes: -1, Shape: []int64{}}
	shaped := false
	err := t.object("tensor "+strconv.Quote(name), func(key string) (err error) {
		switch key {
		case "dtype":
			tensor.DType, err = t.str(name, key)
		case "shape":
			shaped = true
			tensor.Shape, err = t.numbers(name, key, maxDims)
		case "data_offsets":
			err = t.offsets(&tensor)
		default:
			var other json.RawMessage // a key of a later version
			if err = t.dec.Decode(&other); err != nil {
				err = t.fail("tensor %q: %s is no valid JSON: %v", name, key, err)
			}
		}
		return err
	})
	switch {
	case err != nil:
		return err
	case tensor.DType == "" || !shaped || tensor.Bytes < 0:
		return t.fail("tensor %q lacks one of dtype, shape and data_offsets", name)
	}
	if elemBits := dtypeBits[tensor.DType]; elemBits != 0 {
		if want, ok := sizeOf(elemBits, tensor.Shape); !ok || want != tensor.Bytes {
			return t.fail("tensor %q has %d bytes, which does not fit %s %v", name, tensor.Bytes, tensor.DType, tensor.Shape)
		}
	}
	t.byName[name] = len(t.tensors)
	t.tensors = append(t.tensors, tensor)
	return nil
}

func (t *table) metadata() error {
	t.meta = map[string]string{}
	return t.object(metadataKey, func(key string) (err error) {
		t.meta[key], err = t.str(metadataKey, key)
		return err
	})
}

func (t *table) offsets(tensor *Tensor) error {
	pair, err := t.numbers(tensor.Name, "data_offsets", 2)
	if err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] > pair[1] {
		return t.fail("tensor %q has data_offsets %v, want the first byte and the one after the last", tensor.Name, pair)
	}
	tensor.Offset, tensor.Bytes = pair[0], pair[1]-pair[0]
	return nil
}

func (t *table) str(name, key string) (string, error) {
	tok, err := t.token(name)
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", t.fail("%s: %s is %v, want a string", strconv.Quote(name), key, tok)
	}
	return s, nil
}

// numbers reads an array of up to most whole numbers of 0 or more.
func (t *table) numbers(name, key string, most int) ([]int64, error) {
	tok, err := t.token(name)
	if err != nil {
		return nil, err
	}
	if tok != json.Delim('[') {
		return nil, t.fail("tensor %q: %s is %v, want an array", name, key, tok)
	}
	list := []int64{}
	for {
		tok, err := t.token(name)
		if err != nil {
			return nil, err
		}
		if tok == json.Delim(']') {
			return list, nil
		}
		text, _ := tok.(json.Number)
		n, err := strconv.ParseUint(text.String(), 10, 64)
		switch {
		case err != nil || n > math.MaxInt64:
			return nil, t.fail("tensor %q: %s holds %v, want whole numbers of 0 or more", name, key, tok)
		case len(list) == most:
			return nil, t.fail("tensor %q: %s has more than %d numbers", name, key, most)
		}
		list = append(list, int64(n))
	}
}
