package refmodel

import (
	"math"
	"slices"
	"testing"
	"unsafe"
)

func TestTopK(t *testing.T) {
	nan := float32(math.NaN())
	tests := []struct {
		name   string
		values []float32
		want   []int32
	}{
		{"largest first", []float32{1, 4, 2, 3}, []int32{1, 3, 2}},
		{"equals by index", []float32{2, 1, 2, 2}, []int32{0, 2, 3}},
		{"NaN last", []float32{nan, -1, nan, -2}, []int32{1, 3, 0}},
		{"NaN only", []float32{nan, nan, nan}, []int32{0, 1, 2}},
	}
	for _, test := range tests {
		got := make([]int32, 3)
		topK(got, test.values)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestSoftmaxFarApart(t *testing.T) {
	got := []float32{1000, 999, -1000}
	softmax(got)
	want := []float64{1 / (1 + math.Exp(-1)), 1 / (1 + math.E), 0}
	for i := range got {
		if math.Abs(float64(got[i])-want[i]) > 1e-6 {
			t.Errorf("got %v, want %v", got, want)
			break
		}
	}
}

func TestRopeKeepsDistances(t *testing.T) {
	r := newRope(4, 10000)
	dot := func(a, b int) float64 { // of one vector turned to two positions
		x, y := []float32{1, 2, 3, 4}, []float32{4, -1, 2, 0.5}
		r.prepare(a, 1)
		r.rotate(x, 0)
		r.prepare(b, 1)
		r.rotate(y, 0)
		var sum float64
		for i := range x {
			sum += float64(x[i] * y[i])
		}
		return sum
	}
	if got, want := dot(7, 3), dot(104, 100); math.Abs(got-want) > 1e-4 {
		t.Errorf("product 4 positions apart: got %v, further on %v", got, want)
	}
	if got, want := dot(7, 3), dot(7, 5); math.Abs(got-want) < 1e-2 {
		t.Errorf("product 4 and 2 positions apart: got both %v", got)
	}
	// The pairs are (i, i+d/2): position 1 turns the first pair by 1 rad.
	x := []float32{1, 0, 0, 0}
	r.prepare(1, 1)
	r.rotate(x, 0)
	if math.Abs(float64(x[0])-math.Cos(1)) > 1e-6 || math.Abs(float64(x[2])-math.Sin(1)) > 1e-6 || x[1] != 0 || x[3] != 0 {
		t.Errorf("first pair: got %v, want cos 1 and sin 1 at 0 and 2", x)
	}
}

// TestF32Product holds the tensor library against plain sums, wherever the
// bytes lie: results must not depend on the address.
func TestF32Product(t *testing.T) {
	const rows, cols = 9, 37
	buffer := make([]byte, 4*rows*cols+64)
	base := 0
	for uintptr(unsafe.Pointer(&buffer[base]))%32 != 0 {
		base++
	}
	x, want := make([]float32, cols), make([]float64, rows)
	for i := range x {
		x[i] = float32(i%7) - 2.3
	}
	value := func(i int) float32 { return float32(i%11) * 0.37 }
	for r := range rows {
		for c := range cols {
			want[r] += float64(value(r*cols+c)) * float64(x[c])
		}
	}
	var tensors tensors
	var first []float32
	for _, offset := range []int{0, 4, 8, 12, 16, 1, 2, 27} {
		w := weights{typ: "F32", rows: rows, cols: cols, data: buffer[base+offset:][:4*rows*cols]}
		for i := range rows * cols {
			putFloat(w.data[4*i:], value(i))
		}
		y := make([]float32, rows)
		if err := tensors.product([][]float32{y}, w, [][]float32{x}); err != nil {
			t.Fatal(err)
		}
		for r := range y {
			if math.Abs(float64(y[r])-want[r]) > 1e-4 {
				t.Errorf("offset %d: row %d: got %v, want %v", offset, r, y[r], want[r])
			}
		}
		if first == nil {
			first = y
		}
		if !slices.Equal(first, y) {
			t.Errorf("offset %d: got %v, aligned %v", offset, y, first)
		}
		inPlace, err := tensors.floats(w)
		if err != nil {
			t.Fatal(err)
		}
		if shared := unsafe.Pointer(&inPlace[0]) == unsafe.Pointer(&w.data[0]); shared != (offset%4 == 0) {
			t.Errorf("offset %d: weights used in place: got %v", offset, shared)
		}
	}
	short := weights{typ: "F32", rows: rows, cols: cols, data: buffer[:8]}
	wantError(t, "short", tensors.product(nil, short, nil), ErrExperts, "8 bytes for 9 x 37 F32 weights")
}
