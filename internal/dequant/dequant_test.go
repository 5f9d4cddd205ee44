package dequant

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Every format must give ggml's own bits.
func TestRowMatchesGgml(t *testing.T) {
	for _, name := range Names() {
		if name == "F32" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			src, want := golden(t, name+".bin"), golden(t, name+".f32")
			dst := make([]float32, len(want)/4)
			if err := Row(name, src, dst); err != nil {
				t.Fatal(err)
			}
			bad := 0
			for i, x := range dst {
				if w := binary.LittleEndian.Uint32(want[4*i:]); math.Float32bits(x) != w && bad < 5 {
					t.Errorf("element %d: got %v (%#08x), want %v (%#08x)", i, x, math.Float32bits(x), math.Float32frombits(w), w)
					bad++
				}
			}
		})
	}
}

func TestRowF32(t *testing.T) {
	bits := []uint32{0, 0x80000000, 1, 0x3f800000, 0x7f7fffff, 0xff800000, 0x7fc00001}
	src := make([]byte, 4*len(bits))
	for i, b := range bits {
		binary.LittleEndian.PutUint32(src[4*i:], b)
	}
	dst := make([]float32, len(bits))
	if err := Row("F32", src, dst); err != nil {
		t.Fatal(err)
	}
	for i, b := range bits {
		if got := math.Float32bits(dst[i]); got != b {
			t.Errorf("element %d: got %#08x, want %#08x", i, got, b)
		}
	}
}

// All 65,536 halves against the definition of the format.
func TestF16(t *testing.T) {
	for h := range 1 << 16 {
		got := F16(uint16(h))
		sign := float64(1 - h>>15<<1)
		exp, frac := h>>10&31, h&1023
		var want float64
		switch {
		case exp == 31 && frac != 0:
			if bits := math.Float32bits(got); !math.IsNaN(float64(got)) || bits&0x00400000 == 0 || bits>>31 != uint32(h)>>15 {
				t.Errorf("F16(%#04x): got %#08x, want a quiet NaN of its sign", h, bits)
			}
			continue
		case exp == 31:
			want = math.Inf(int(sign))
		case exp == 0:
			want = math.Copysign(math.Ldexp(float64(frac), -24), sign)
		default:
			want = math.Copysign(math.Ldexp(float64(1024+frac), exp-25), sign)
		}
		if math.Float32bits(got) != math.Float32bits(float32(want)) {
			t.Errorf("F16(%#04x): got %v, want %v", h, got, want)
		}
	}
}

// A row must not depend on the rows around it, and no block on the one before.
func TestRowsAreIndependent(t *testing.T) {
	for _, name := range Names() {
		if name == "F32" {
			continue
		}
		f, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		src := golden(t, name+".bin")
		n := len(src) / f.Bytes
		whole := make([]float32, n*f.Block)
		if err := f.Row(src, whole); err != nil {
			t.Fatal(err)
		}
		one := make([]float32, f.Block)
		for b := range n {
			if err := f.Row(src[b*f.Bytes:(b+1)*f.Bytes], one); err != nil {
				t.Fatal(err)
			}
			for i, x := range one {
				if w := whole[b*f.Block+i]; math.Float32bits(x) != math.Float32bits(w) {
					t.Fatalf("%s: block %d alone, element %d: got %v, want %v", name, b, i, x, w)
				}
			}
		}
	}
}

func TestRowErrors(t *testing.T) {
	for _, c := range []struct {
		name      string
		src, dst  int
		want      string
		unknownTy bool
	}{
		{"Q3_K", 110, 256, `tensor type cannot be dequantised: "Q3_K"`, true},
		{"q8_0", 34, 32, `"q8_0"`, true},
		{"", 0, 0, `""`, true},
		{"Q8_0", 34, 31, "row of 31 elements is no multiple of 32", false},
		{"Q8_0", 33, 32, "row of 32 elements in 33 bytes, want 34", false},
		{"Q8_0", 68, 32, "in 68 bytes, want 34", false},
		{"Q6_K", 210, 128, "no multiple of 256", false},
		{"F32", 3, 1, "in 3 bytes, want 4", false},
	} {
		dst := make([]float32, c.dst)
		for i := range dst {
			dst[i] = 7
		}
		err := Row(c.name, make([]byte, c.src), dst)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrType) != c.unknownTy {
			t.Errorf("Row(%q, %d bytes, %d elements): got %v, want an error with %q", c.name, c.src, c.dst, err, c.want)
		}
		for i, x := range dst {
			if x != 7 {
				t.Errorf("Row(%q) after an error: element %d is %v, want it untouched", c.name, i, x)
				break
			}
		}
	}
}

func TestRowDoesNotAllocate(t *testing.T) {
	for _, name := range Names() {
		f, _ := Lookup(name)
		src, dst := make([]byte, f.RowBytes(512)), make([]float32, 512)
		if n := testing.AllocsPerRun(20, func() {
			if err := Row(name, src, dst); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("Row(%q): got %v allocations, want 0", name, n)
		}
	}
}

// No bits may make a decoder panic or write outside its row.
func FuzzRow(f *testing.F) {
	for i, name := range Names() {
		if name != "F32" {
			f.Add(uint8(i), golden(f, name+".bin"))
		}
	}
	f.Fuzz(func(t *testing.T, format uint8, src []byte) {
		fm := &formats[int(format)%len(formats)]
		n := len(src) / fm.Bytes * fm.Block
		buf := make([]float32, n+2)
		buf[0], buf[n+1] = 5, 5
		if err := fm.Row(src[:n/fm.Block*fm.Bytes], buf[1:n+1:n+1]); err != nil {
			t.Fatal(err)
		}
		if buf[0] != 5 || buf[n+1] != 5 {
			t.Fatalf("%s wrote outside its row", fm.Name)
		}
	})
}

// Bytes a second are those of the float32 written.
func BenchmarkRow(b *testing.B) {
	const n = 4096
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			f, err := Lookup(name)
			if err != nil {
				b.Fatal(err)
			}
			src, dst := make([]byte, f.RowBytes(n)), make([]float32, n)
			for i := range src {
				src[i] = byte(rng.Uint32()) & 0x3b // keeps scales finite
			}
			b.SetBytes(4 * n)
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Row(src, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
