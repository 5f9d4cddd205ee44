package synthckpt

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"

	"outrider/internal/dequant"
	"outrider/layout/gguf"
)

func dataOf(t *testing.T, typ string, dims []int64, format string, r rule) []byte {
	t.Helper()
	n, err := sizeOf(format, typ, dims)
	if err != nil {
		t.Fatal(err)
	}
	m := &Model{seed: 7}
	var b bytes.Buffer
	if err := m.writeData(&Tensor{Name: "a", Type: typ, Bytes: n, rule: r}, &b); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != n {
		t.Fatalf("%s: got %d bytes, want %d", typ, b.Len(), n)
	}
	return b.Bytes()
}

// Weights are finite and about as large as those of a small model.
func TestWeightsAreSmall(t *testing.T) {
	const count = 64 * 256
	for _, typ := range dequant.Names() {
		if _, ok := encoders[typ]; !ok {
			t.Errorf("%s is dequantised, but not made", typ)
			continue
		}
		got := make([]float32, count)
		if err := dequant.Row(typ, dataOf(t, typ, []int64{count}, GGUF, rule{}), got); err != nil {
			t.Fatal(err)
		}
		var sum float64
		for _, v := range got {
			if v != v || math.IsInf(float64(v), 0) {
				t.Fatalf("%s: got %v", typ, v)
			}
			sum += float64(v) * float64(v)
		}
		if rms := math.Sqrt(sum / count); rms < 0.01 || rms > 0.3 {
			t.Errorf("%s: got a root mean square of %.3f, want about 0.05", typ, rms)
		}
	}
}

// The block sizes are those of the readers.
func TestBlockSizes(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(encoders)) {
		if typ, ok := gguf.ParseType(name); ok && typ.BlockBytes() != encoders[name].bytes {
			t.Errorf("%s: got blocks of %d bytes, want %d", name, encoders[name].bytes, typ.BlockBytes())
		}
	}
}

func TestRules(t *testing.T) {
	floats := func(r rule) []float32 {
		b := dataOf(t, "F16", []int64{1000}, GGUF, r)
		v := make([]float32, 1000)
		for i := range v {
			v[i] = dequant.F16(binary.LittleEndian.Uint16(b[2*i:]))
		}
		return v
	}
	for _, v := range floats(rule{kind: nearOne}) {
		if v < 0.9 || v > 1.1 {
			t.Fatalf("a norm's weight: got %v, want about 1", v)
		}
	}
	for _, v := range floats(rule{kind: positive}) {
		if v <= 0 || v > 0.1 {
			t.Fatalf("a scale: got %v, want a small one above 0", v)
		}
	}
	ints := func(r rule, n int64) []int64 {
		b := dataOf(t, "I64", []int64{n}, Safetensors, r)
		v := make([]int64, n)
		if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	table := ints(rule{kind: ids, a: 5, b: 3}, 30)
	for row := range slices.Chunk(table, 3) {
		slices.Sort(row)
		if row[0] < 0 || row[2] > 4 || len(slices.Compact(row)) != 3 {
			t.Fatalf("a row of experts: got %v, want three different ones below 5", row)
		}
	}
	if got := ints(rule{kind: groups, a: 4}, 9); !slices.Equal(got, []int64{0, 0, 0, 0, 1, 1, 1, 1, 2}) {
		t.Errorf("groups: got %v", got)
	}
	if got := ints(rule{kind: pair, a: 96, b: 64}, 2); !slices.Equal(got, []int64{96, 64}) {
		t.Errorf("a pair: got %v, want 96 and 64", got)
	}
	for _, v := range dataOf(t, "F8_E4M3", []int64{4096}, Safetensors, rule{}) {
		if v&0x7f == 0x7f {
			t.Fatalf("F8_E4M3: got %#x, which is no number", v)
		}
	}
	for _, v := range dataOf(t, "F8_E8M0", []int64{4096}, Safetensors, rule{kind: positive}) {
		if v < 100 || v > 127 {
			t.Fatalf("F8_E8M0: got 2^%d, want a small scale", int(v)-127)
		}
	}
}
