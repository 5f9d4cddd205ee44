package safetensors

import "bytes"

const (
	metadataKey  = "__metadata__"
	headerKind   = "the header"
	maxDims      = 32
	maxNameBytes = 4 << 10
	leastEntry   = 48 // bytes of the shortest tensor that a header can name
)

// table reads the header's object into a File.
type table struct {
	*File
	scanner
	dtypes map[string]string // each dtype's name is kept once
	dims   []int64           // room for shapes, which would each be an allocation
}

func (f *File) parseTable(head []byte) error {
	t := &table{File: f, dtypes: map[string]string{}}
	t.scanner = scanner{text: head, kind: headerKind, wrong: func(at int, reason string) error {
		return f.wrong(ErrDamaged, lengthBytes+int64(at), "%s", reason)
	}}
	n := min(bytes.Count(head, []byte(`"dtype"`)), len(head)/leastEntry)
	f.tensors, f.byName = make([]Tensor, 0, n), make(map[string]int, n)
	if err := t.object(t.entry); err != nil {
		return err
	}
	return t.end()
}

// entry reads the value of one key of the header.
func (t *table) entry(key []byte) error {
	if string(key) == metadataKey {
		return t.metadata()
	}
	if _, twice := t.byName[string(key)]; twice {
		return t.fail("has %q twice", key)
	}
	tensor := Tensor{Name: string(key), Bytes: -1}
	t.kind, t.name = "tensor", tensor.Name
	if err := t.object(func(key []byte) error { return t.field(&tensor, key) }); err != nil {
		return err
	}
	if tensor.DType == "" || tensor.Shape == nil || tensor.Bytes < 0 {
		return t.fail("lacks one of dtype, shape and data_offsets")
	}
	if elemBits := dtypeBits[tensor.DType]; elemBits != 0 {
		if want, ok := sizeOf(elemBits, tensor.Shape); !ok || want != tensor.Bytes {
			return t.fail("has %d bytes, which does not fit %s %v", tensor.Bytes, tensor.DType, tensor.Shape)
		}
	}
	t.byName[tensor.Name] = len(t.tensors)
	t.tensors = append(t.tensors, tensor)
	t.kind, t.name = headerKind, ""
	return nil
}

// field reads one value of a tensor's entry.
func (t *table) field(tensor *Tensor, key []byte) (err error) {
	twice := false
	switch string(key) {
	case "dtype":
		twice = tensor.DType != ""
		tensor.DType, err = t.dtype()
	case "shape":
		twice = tensor.Shape != nil
		tensor.Shape, err = t.shape()
	case "data_offsets":
		twice = tensor.Bytes >= 0
		err = t.offsets(tensor)
	default: // a key of a later version
		_, err = t.skip()
	}
	if twice && err == nil {
		err = t.fail("has %q twice", key)
	}
	return err
}

func (t *table) dtype() (string, error) {
	text, err := t.str("dtype")
	if err != nil {
		return "", err
	}
	name, ok := t.dtypes[string(text)]
	if !ok {
		name = string(text)
		t.dtypes[name] = name
	}
	return name, nil
}

func (t *table) shape() ([]int64, error) {
	if cap(t.dims)-len(t.dims) < maxDims {
		t.dims = make([]int64, 0, 64*maxDims)
	}
	start := len(t.dims)
	dims, err := t.numbers("shape", t.dims, maxDims)
	if err != nil {
		return nil, err
	}
	t.dims = dims
	return dims[start:len(dims):len(dims)], nil
}

func (t *table) offsets(tensor *Tensor) error {
	var room [2]int64
	pair, err := t.numbers("data_offsets", room[:0], 2)
	if err != nil {
		return err
	}
	if len(pair) != 2 || pair[0] > pair[1] {
		return t.fail("has data_offsets %v, want the first byte and the one after the last", pair)
	}
	tensor.Offset, tensor.Bytes = pair[0], pair[1]-pair[0]
	return nil
}

func (t *table) metadata() error {
	if t.meta != nil {
		return t.fail("has %q twice", metadataKey)
	}
	t.meta = map[string]string{}
	t.kind = metadataKey
	err := t.object(func(key []byte) error {
		name := string(key)
		if _, twice := t.meta[name]; twice {
			return t.fail("has %q twice", name)
		}
		text, err := t.str(name)
		t.meta[name] = string(text)
		return err
	})
	t.kind = headerKind
	return err
}
