package ggufwrite

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// The exact bytes of a small file, by the format's specification.
func TestBytes(t *testing.T) {
	w := &Writer{Alignment: 16}
	w.Set("s", "hi")
	w.Set("a", []uint16{1, 2})
	w.Tensor("t", 24, []int64{3, 1}, []byte{7, 8, 9})
	w.Tensor("u", 24, []int64{1}, []byte{5})
	got, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for _, s := range []string{
		"GGUF", "\x03\x00\x00\x00", n64(2), n64(3),
		n64(1), "s", n32(8), n64(2), "hi",
		n64(1), "a", n32(9), n32(2), n64(2), "\x01\x00\x02\x00",
		n64(17), "general.alignment", n32(4), n32(16),
		n64(1), "t", n32(2), n64(3), n64(1), n32(24), n64(0),
		n64(1), "u", n32(1), n64(1), n32(24), n64(16),
	} {
		want.WriteString(s)
	}
	for want.Len()%16 != 0 {
		want.WriteByte(0)
	}
	want.WriteString("\x07\x08\x09" + strings.Repeat("\x00", 13))
	want.WriteString("\x05" + strings.Repeat("\x00", 15))
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("got %q, want %q", got, want.Bytes())
	}
	again, err := w.Bytes()
	if err != nil || !bytes.Equal(got, again) {
		t.Errorf("written twice: got other bytes, %v", err)
	}
}

func n32(n byte) string { return string([]byte{n, 0, 0, 0}) }
func n64(n byte) string { return string([]byte{n, 0, 0, 0, 0, 0, 0, 0}) }

func TestTensorFuncEqualsTensor(t *testing.T) {
	data := bytes.Repeat([]byte{1, 2, 3}, 1000)
	a, b := &Writer{}, &Writer{}
	a.Tensor("t", 24, []int64{3000}, data)
	b.TensorFunc("t", 24, []int64{3000}, Stream{Bytes: 3000, Write: func(out io.Writer) error {
		for range 1000 {
			if _, err := out.Write(data[:3]); err != nil {
				return err
			}
		}
		return nil
	}})
	x, err1 := a.Bytes()
	y, err2 := b.Bytes()
	if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
		t.Errorf("got different files (%v, %v), want equal ones", err1, err2)
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, c := range []struct {
		name  string
		build func(*Writer)
		want  string
	}{
		{"unknown type of value", func(w *Writer) { w.Set("k", struct{}{}) }, `key "k": a value of type struct {} has no kind`},
		{"alignment", func(w *Writer) { w.Alignment = 3 }, "alignment 3 is no power of two"},
		{"short stream", func(w *Writer) {
			w.TensorFunc("t", 0, nil, Stream{Bytes: 4, Write: func(io.Writer) error { return nil }})
		}, `tensor "t": 0 bytes written, want 4`},
		{"failing stream", func(w *Writer) {
			w.TensorFunc("t", 0, nil, Stream{Write: func(io.Writer) error { return broken }})
		}, `tensor "t": broken`},
	} {
		w := &Writer{}
		c.build(w)
		if _, err := w.Bytes(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	w := &Writer{}
	w.Tensor("t", 24, nil, []byte{1})
	if _, err := w.Split(2); err == nil || !strings.Contains(err.Error(), "wants 2 tensors, 1 are left") {
		t.Errorf("Split(2) of one tensor: got %v, want an error", err)
	}
	if _, err := w.Split(0); err == nil || !strings.Contains(err.Error(), "1 tensors are in no shard") {
		t.Errorf("Split(0) of one tensor: got %v, want an error", err)
	}
}
