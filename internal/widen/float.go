package widen

import "encoding/binary"

// float is a binary floating-point encoding of up to 64 bits: a sign (or nothing)
// above exp bits of exponent above frac bits of fraction, with subnormals.
type float struct {
	exp, frac uint
	ieee      bool // the largest exponent means infinity and NaN, which stay as they are
}

var (
	float16  = float{exp: 5, frac: 10, ieee: true}
	bfloat16 = float{exp: 8, frac: 7, ieee: true}
	float32s = float{exp: 8, frac: 23, ieee: true}
	float64s = float{exp: 11, frac: 52, ieee: true}
	ue4m3    = float{exp: 4, frac: 3}
)

// share is the given copy's part of a number that 2^shift copies share: they add
// up to it exactly. The parts are equal unless the quotient has no exact encoding;
// then uneven is true, and some parts are one unit of the last place larger than
// the others.
func (f float) share(bits uint64, shift uint, copy uint64) (part uint64, uneven bool) {
	top := uint64(1)<<f.exp - 1
	magnitude := uint64(1)<<(f.exp+f.frac) - 1
	exponent := bits >> f.frac & top
	switch {
	case f.ieee && exponent == top, !f.ieee && bits&magnitude == magnitude:
		return bits, false
	case exponent > uint64(shift):
		return bits - uint64(shift)<<f.frac, false
	}
	// In units of the smallest number the value is an integer of at most frac+1
	// significant bits; a quotient down here is below 2^frac and encodes itself.
	units := bits & (1<<f.frac - 1)
	if exponent > 0 {
		units = (units | 1<<f.frac) << (exponent - 1)
	}
	rest := units & (1<<shift - 1)
	part = units >> shift
	if copy < rest {
		part++
	}
	return bits&^magnitude | part, rest != 0
}

// The shares of the numbers as they lie in a file, little-endian.

func (f float) share16(dst, src []byte, shift uint, copy uint64) bool {
	part, uneven := f.share(uint64(binary.LittleEndian.Uint16(src)), shift, copy)
	binary.LittleEndian.PutUint16(dst, uint16(part))
	return uneven
}

func (f float) share32(dst, src []byte, shift uint, copy uint64) bool {
	part, uneven := f.share(uint64(binary.LittleEndian.Uint32(src)), shift, copy)
	binary.LittleEndian.PutUint32(dst, uint32(part))
	return uneven
}

func (f float) share64(dst, src []byte, shift uint, copy uint64) bool {
	part, uneven := f.share(binary.LittleEndian.Uint64(src), shift, copy)
	binary.LittleEndian.PutUint64(dst, part)
	return uneven
}
