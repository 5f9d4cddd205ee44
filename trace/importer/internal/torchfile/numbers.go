package torchfile

import (
	"archive/zip"
	"encoding/binary"
	"math"
	"strings"
)

// Ints reads the numbers of a tensor of integers (or bools) in row-major order.
func (f *File) Ints(t *Tensor) ([]int64, error) {
	if strings.Contains(t.DType, "float") {
		return nil, fail(ErrDamaged, "a tensor of %s, want integers", t.DType)
	}
	return numbers(f, t, func(bits uint64) int64 {
		switch t.DType {
		case "int8":
			return int64(int8(bits))
		case "int16":
			return int64(int16(bits))
		case "int32":
			return int64(int32(bits))
		}
		return int64(bits)
	})
}

// Floats reads the numbers of a tensor of any dtype in row-major order.
func (f *File) Floats(t *Tensor) ([]float64, error) {
	switch t.DType {
	case "float64":
		return numbers(f, t, math.Float64frombits)
	case "float32":
		return numbers(f, t, func(bits uint64) float64 { return float64(math.Float32frombits(uint32(bits))) })
	case "bfloat16":
		return numbers(f, t, func(bits uint64) float64 { return float64(math.Float32frombits(uint32(bits) << 16)) })
	case "float16":
		return numbers(f, t, half)
	}
	ints, err := f.Ints(t)
	floats := make([]float64, len(ints))
	for i, n := range ints {
		floats[i] = float64(n)
	}
	return floats, err
}

// numbers reads the storage and walks over it with the tensor's strides.
func numbers[T any](f *File, t *Tensor, of func(bits uint64) T) ([]T, error) {
	n := t.Numel()
	if n == 0 {
		return nil, nil
	}
	data, err := f.data(t.store)
	if err != nil {
		return nil, err
	}
	width := widths[t.DType]
	list := make([]T, 0, n)
	index := make([]int64, len(t.Shape))
	for at := t.offset; ; {
		list = append(list, of(f.word(data[at*width:(at+1)*width])))
		d := len(index) - 1
		for ; d >= 0; d-- {
			index[d]++
			at += t.stride[d]
			if index[d] < t.Shape[d] {
				break
			}
			at -= t.Shape[d] * t.stride[d]
			index[d] = 0
		}
		if d < 0 {
			return list, nil
		}
	}
}

// data is the storage's bytes, as many as it must have.
func (f *File) data(s *storage) ([]byte, error) {
	name := f.prefix + "/data/" + s.key
	e := f.entries[name]
	if e == nil {
		return nil, fail(ErrDamaged, "the file has no entry %q", name)
	}
	if e.Method != zip.Store {
		return nil, fail(ErrDamaged, "%s is compressed; torch.save stores numbers as they are: unpack the file and zip it with -0", name)
	}
	if f.spent += int64(min(e.UncompressedSize64, maxStorage)); f.spent > maxReads*f.size {
		return nil, fail(ErrDamaged, "its tensors, read one by one, are more than %d times the file's %d bytes: many of them share a storage", maxReads, f.size)
	}
	width := widths[s.dtype]
	if s.numel > maxStorage/width || e.UncompressedSize64 != uint64(s.numel*width) {
		return nil, fail(ErrDamaged, "%s has %d bytes, want %d numbers of %s and at most %d bytes", name, e.UncompressedSize64, s.numel, s.dtype, maxStorage)
	}
	return f.read(e, maxStorage)
}

func (f *File) word(b []byte) uint64 {
	var order binary.ByteOrder = binary.LittleEndian
	if f.big {
		order = binary.BigEndian
	}
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(order.Uint16(b))
	case 4:
		return uint64(order.Uint32(b))
	}
	return order.Uint64(b)
}

// half is the value of a float16.
func half(bits uint64) float64 {
	exp, frac := int(bits>>10&31), float64(bits&1023)
	v := 0.0
	switch exp {
	case 0:
		v = math.Ldexp(frac, -24)
	case 31:
		v = math.Inf(1)
		if frac != 0 {
			v = math.NaN()
		}
	default:
		v = math.Ldexp(frac+1024, exp-25)
	}
	if bits>>15&1 != 0 {
		v = -v
	}
	return v
}
