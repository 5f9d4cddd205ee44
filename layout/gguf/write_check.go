package gguf

import (
	"fmt"
	"math"
)

// check refuses what no reader would have, and returns the tensors with their
// sizes.
func (w *Writer) check() ([]writerTensor, error) {
	tensors := make([]writerTensor, len(w.tensors))
	for i, t := range w.tensors {
		size, err := w.tensorBytes(t)
		if err != nil {
			return nil, fmt.Errorf("gguf: write: tensor %q: %w", t.name, err)
		}
		tensors[i] = t
		tensors[i].bytes = size
	}
	if n := w.align(); n == 0 || n&(n-1) != 0 || n > maxAlignment {
		return nil, fmt.Errorf("gguf: write: alignment %d, want a power of two up to %d", n, maxAlignment)
	}
	if w.Unchecked {
		return tensors, nil
	}
	if v := w.version(); v != 2 && v != 3 || v == 2 && w.BigEndian {
		return nil, fmt.Errorf("gguf: write: version %d (big-endian: %v), want 3, or 2 and little-endian", v, w.BigEndian)
	}
	if len(w.tensors) > maxTensors || len(w.kvs) > maxKeys {
		return nil, fmt.Errorf("gguf: write: %d tensors and %d keys, the limits are %d and %d", len(w.tensors), len(w.kvs), maxTensors, maxKeys)
	}
	if err := w.checkKeys(); err != nil {
		return nil, err
	}
	return tensors, w.checkNames()
}

func (w *Writer) tensorBytes(t writerTensor) (int64, error) {
	if w.Unchecked && t.bytes >= 0 {
		return t.bytes, nil
	}
	want, err := t.typ.Bytes(t.dims)
	switch {
	case err != nil:
		return 0, err
	case t.bytes >= 0 && t.bytes != want:
		return 0, fmt.Errorf("%d bytes given, %v %v takes %d", t.bytes, t.typ, t.dims, want)
	case len(t.dims) > maxDims:
		return 0, fmt.Errorf("%d dimensions, want at most %d", len(t.dims), maxDims)
	}
	return want, nil
}

func (w *Writer) checkKeys() error {
	seen := make(map[string]bool, len(w.kvs))
	for _, e := range w.kvs {
		switch {
		case e.key == keyAlignment:
			return fmt.Errorf("gguf: write: key %q is written from Align; set that instead", e.key)
		case e.key == "" || len(e.key) > maxKeyBytes:
			return fmt.Errorf("gguf: write: a key of %d bytes, want 1 to %d", len(e.key), maxKeyBytes)
		case seen[e.key]:
			return fmt.Errorf("gguf: write: key %q is set twice", e.key)
		}
		seen[e.key] = true
	}
	return nil
}

// checkNames also makes sure that the offsets of the table fit.
func (w *Writer) checkNames() error {
	seen := make(map[string]bool, len(w.tensors))
	var total int64
	for _, t := range w.tensors {
		switch {
		case t.name == "" || len(t.name) > maxNameBytes:
			return fmt.Errorf("gguf: write: a tensor's name of %d bytes, want 1 to %d", len(t.name), maxNameBytes)
		case seen[t.name]:
			return fmt.Errorf("gguf: write: tensor %q is there twice", t.name)
		}
		seen[t.name] = true
		size, _ := t.typ.Bytes(t.dims) // checked before
		if size > math.MaxInt64/2-total {
			return fmt.Errorf("gguf: write: tensor %q brings the file beyond %d bytes", t.name, int64(math.MaxInt64/2))
		}
		total += size + w.align()
	}
	return nil
}

func (w *Writer) align() int64 {
	if w.Align == 0 {
		return defaultAlignment
	}
	return int64(w.Align)
}

func (w *Writer) version() uint32 {
	if w.Version == 0 {
		return 3
	}
	return w.Version
}
