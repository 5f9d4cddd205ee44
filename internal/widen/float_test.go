package widen

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"outrider/internal/dequant"
)

// fullDecoders give the value of a small encoding exactly.
var fullDecoders = []struct {
	name   string
	format float
	bits   uint
	value  func(uint64) float64
}{
	{"F16", float16, 16, func(b uint64) float64 { return float64(dequant.F16(uint16(b))) }},
	{"BF16", bfloat16, 16, func(b uint64) float64 { return float64(dequant.BF16(uint16(b))) }},
	{"UE4M3", ue4m3, 7, decodeUE4M3},
}

func decodeUE4M3(b uint64) float64 {
	exponent, fraction := int(b>>3&15), float64(b&7)
	if exponent == 0 {
		return math.Ldexp(fraction, -9)
	}
	return math.Ldexp(8+fraction, exponent-10)
}

// Every number of the small encodings: its shares add up to it exactly, and differ
// by one unit of the last place at most.
func TestSharesAddUp(t *testing.T) {
	for _, d := range fullDecoders {
		for b := range uint64(1) << d.bits {
			for _, shift := range []uint{1, 3, 10} {
				checkShares(t, d.name, d.format, b, shift, d.value)
			}
		}
	}
}

// The same for numbers that are too many to try all, many of them too small to divide.
func TestSharesAddUpWide(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	single := func(b uint64) float64 { return float64(math.Float32frombits(uint32(b))) }
	for i := range 4000 {
		b32, b64 := uint64(random.Uint32()), random.Uint64()
		if i%2 == 0 { // exponents at the lower end
			b32, b64 = b32&^(0xf8<<23), b64&^(0x7f8<<52)
		}
		shift := uint(i%10) + 1
		checkShares(t, "F32", float32s, b32, shift, single)
		checkShares(t, "F64", float64s, b64, shift, math.Float64frombits)
	}
}

func checkShares(t *testing.T, name string, f float, bits uint64, shift uint, value func(uint64) float64) {
	t.Helper()
	want, copies := value(bits), uint64(1)<<shift
	first, uneven := f.share(bits, shift, 0)
	last, _ := f.share(bits, shift, copies-1)
	if math.IsNaN(want) || math.IsInf(want, 0) || name == "UE4M3" && bits == 0x7f {
		if first != bits || last != bits || uneven {
			t.Errorf("%s %#x / 2^%d: got %#x, %#x, want it as it is", name, bits, shift, first, last)
		}
		return
	}
	if !uneven {
		if math.Ldexp(value(first), int(shift)) != want || last != first || math.Signbit(value(first)) != math.Signbit(want) {
			t.Errorf("%s %v / 2^%d: got %v and %v, want equal exact quotients", name, want, shift, value(first), value(last))
		}
		return
	}
	if first-last != 1 {
		t.Errorf("%s %v / 2^%d: got %#x for the first and %#x for the last copy, want one unit apart", name, want, shift, first, last)
	}
	// Copies of two values: how many there are of each decides the sum.
	larger := uint64(0)
	for copy := range copies {
		part, _ := f.share(bits, shift, copy)
		if part == first && copy == larger {
			larger++
		} else if part != last {
			t.Fatalf("%s %#x / 2^%d: copy %d is %#x, want %#x then %#x", name, bits, shift, copy, part, first, last)
		}
	}
	unit := value(first) - value(last)
	if value(last)*float64(copies)+unit*float64(larger) != want {
		t.Errorf("%s %v / 2^%d: got %d x %v and %d x %v, want that sum", name, want, shift, larger, value(first), copies-larger, value(last))
	}
}

// Shares that are not equal are the exception: only where the exact quotient has no encoding.
func TestUnevenIsLast(t *testing.T) {
	for b := range uint64(1) << 15 {
		value := dequant.F16(uint16(b))
		quotient := float64(value) / 8
		_, uneven := float16.share(b, 3, 0)
		exact := math.Mod(quotient, math.Ldexp(1, -24)) == 0
		if !math.IsNaN(quotient) && !math.IsInf(quotient, 0) && uneven == exact {
			t.Fatalf("%v / 8: uneven is %v, though exactness of the quotient is %v", value, uneven, exact)
		}
	}
}

func put16(b []byte, v uint16) { binary.LittleEndian.PutUint16(b, v) }
