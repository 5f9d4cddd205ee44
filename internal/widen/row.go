package widen

import "outrider/layout/gguf"

// divider makes the shares of rows, block by block. For one goroutine.
type divider struct {
	divide divisor
	block  int // bytes
	shift  uint
	uneven []int // blocks of the latest row whose shares differ, by their offset
}

// newDivider is for rows of a type that 2^shift copies share. With shift 0 every
// copy is the row itself, of any type.
func newDivider(t gguf.Type, shift uint) *divider {
	return &divider{divide: divisors[t], block: t.BlockBytes(), shift: shift}
}

// first writes the first copy's share of a row, and remembers where others differ.
func (d *divider) first(dst, src []byte) {
	copy(dst, src)
	d.uneven = d.uneven[:0]
	if d.shift == 0 {
		return
	}
	for at := 0; at+d.block <= len(src); at += d.block {
		if d.divide(dst[at:at+d.block], src[at:at+d.block], d.shift, 0) {
			d.uneven = append(d.uneven, at)
		}
	}
}

// next turns dst, which holds any earlier copy's share of the row that first was
// given, into that of the given copy.
func (d *divider) next(dst, src []byte, number uint64) {
	for _, at := range d.uneven {
		block := src[at : at+d.block]
		copy(dst[at:], block)
		d.divide(dst[at:at+d.block], block, d.shift, number)
	}
}
