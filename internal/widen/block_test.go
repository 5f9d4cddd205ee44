package widen

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"outrider/internal/dequant"
	"outrider/internal/testfiles"
	"outrider/layout/gguf"
)

// shareOf is one copy's share of a block.
func shareOf(t testing.TB, typ gguf.Type, block []byte, shift uint, number uint64) (share []byte, uneven bool) {
	t.Helper()
	share = bytes.Clone(block)
	return share, divisors[typ](share, block, shift, number)
}

// Every type that can be dequantised: on ggml's own sample blocks, a copy is the
// block over the factor, bit for bit, unless that has no encoding.
func TestDividedBlocks(t *testing.T) {
	for _, name := range dequant.Names() {
		typ, ok := gguf.ParseType(name)
		if !ok {
			t.Fatalf("%s: no such type", name)
		}
		format, err := dequant.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		even, uneven := 0, 0
		for at := sampleBlocks(t, name); len(at) >= format.Bytes; at = at[format.Bytes:] {
			for _, shift := range []uint{1, 3} {
				if compareBlock(t, format, typ, at[:format.Bytes], shift) {
					uneven++
				} else {
					even++
				}
			}
		}
		if even == 0 {
			t.Errorf("%s: got no block that divides, want most to", name)
		}
		t.Logf("%-6s %d blocks with equal copies, %d without", name, even, uneven)
	}
}

func sampleBlocks(t *testing.T, name string) []byte {
	t.Helper()
	if name == "F32" {
		return []byte{0, 0, 0xc0, 0x3f, 1, 0, 0, 0x80, 0xff, 0xff, 0x7f, 0x7f, 3, 0, 0x80, 0}
	}
	b, err := os.ReadFile(filepath.Join(testfiles.Root(t), "internal", "dequant", "testdata", name+".bin"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func compareBlock(t *testing.T, format *dequant.Format, typ gguf.Type, block []byte, shift uint) (uneven bool) {
	t.Helper()
	whole := dequantised(t, format, block)
	sum := make([]float64, format.Block)
	for number := range uint64(1) << shift {
		share, differs := shareOf(t, typ, block, shift, number)
		uneven = differs
		for i, v := range dequantised(t, format, share) {
			sum[i] += float64(v)
			if want := whole[i] / float32(uint(1)<<shift); !differs && math.Float32bits(v) != math.Float32bits(want) && finite(whole[i]) {
				t.Fatalf("%s / 2^%d: element %d of copy %d is %v, want %v", format.Name, shift, i, number, v, want)
			}
		}
	}
	for i, v := range whole {
		// Dequantised copies are rounded, each for itself.
		if d := math.Abs(sum[i] - float64(v)); finite(v) && d > 1e-6*math.Abs(float64(v))+1e-12 {
			t.Fatalf("%s / 2^%d: copies of element %d add up to %v, want %v", format.Name, shift, i, sum[i], v)
		}
	}
	return uneven
}

func finite(v float32) bool { return !math.IsNaN(float64(v)) && !math.IsInf(float64(v), 0) }

func dequantised(t *testing.T, format *dequant.Format, block []byte) []float32 {
	t.Helper()
	out := make([]float32, format.Block)
	if err := format.Row(block, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// field is a part of a block, as ggml declares it.
type field struct {
	name  string
	bytes int
}

// declared are the blocks with float16 scales, in ggml's order of fields.
var declared = map[gguf.Type][]field{
	gguf.Q2_K: {{"scales", 16}, {"qs", 64}, {"d", 2}, {"dmin", 2}},
	gguf.Q3_K: {{"hmask", 32}, {"qs", 64}, {"scales", 12}, {"d", 2}},
	gguf.Q4_K: {{"d", 2}, {"dmin", 2}, {"scales", 12}, {"qs", 128}},
	gguf.Q5_K: {{"d", 2}, {"dmin", 2}, {"scales", 12}, {"qh", 32}, {"qs", 128}},
	gguf.Q6_K: {{"ql", 128}, {"qh", 64}, {"scales", 16}, {"d", 2}},
	gguf.Q4_0: {{"d", 2}, {"qs", 16}}, gguf.Q4_1: {{"d", 2}, {"m", 2}, {"qs", 16}},
	gguf.Q5_0: {{"d", 2}, {"qh", 4}, {"qs", 16}}, gguf.Q5_1: {{"d", 2}, {"m", 2}, {"qh", 4}, {"qs", 16}},
	gguf.Q8_0:    {{"d", 2}, {"qs", 32}},
	gguf.IQ1_S:   {{"d", 2}, {"qs", 32}, {"qh", 16}},
	gguf.IQ2_XXS: {{"d", 2}, {"qs", 64}},
	gguf.IQ2_XS:  {{"d", 2}, {"qs", 64}, {"scales", 8}},
	gguf.IQ2_S:   {{"d", 2}, {"qs", 64}, {"qh", 8}, {"scales", 8}},
	gguf.IQ3_XXS: {{"d", 2}, {"qs", 96}},
	gguf.IQ3_S:   {{"d", 2}, {"qs", 64}, {"qh", 8}, {"signs", 32}, {"scales", 4}},
	gguf.IQ4_NL:  {{"d", 2}, {"qs", 16}},
	gguf.IQ4_XS:  {{"d", 2}, {"scales_h", 2}, {"scales_l", 4}, {"qs", 128}},
	gguf.TQ1_0:   {{"qs", 48}, {"qh", 4}, {"d", 2}}, gguf.TQ2_0: {{"qs", 64}, {"d", 2}},
	gguf.Q1_0: {{"d", 2}, {"qs", 16}}, gguf.Q2_0: {{"d", 2}, {"qs", 16}},
}

// The numbers that scale a block are halved, and no other byte changes.
func TestScalesByDeclaration(t *testing.T) {
	for typ, fields := range declared {
		block := bytes.Repeat([]byte{0x5a}, typ.BlockBytes()) // as a half: 203.25
		share, uneven := shareOf(t, typ, block, 2, 3)
		at := 0
		for _, f := range fields {
			got := share[at : at+f.bytes]
			switch f.name {
			case "d", "dmin", "m":
				if v := dequant.F16(binary.LittleEndian.Uint16(got)); v != 203.25/4 {
					t.Errorf("%v: %s: got %v, want a quarter of 203.25", typ, f.name, v)
				}
			default:
				if !bytes.Equal(got, block[at:at+f.bytes]) {
					t.Errorf("%v: %s has changed", typ, f.name)
				}
			}
			at += f.bytes
		}
		if at != typ.BlockBytes() || uneven {
			t.Errorf("%v: got %d bytes, uneven %v, want %d, equal", typ, at, uneven, typ.BlockBytes())
		}
	}
}

// Every type of GGUF is either divided or refused on purpose.
func TestEveryTypeIsJudged(t *testing.T) {
	refused := map[gguf.Type]bool{gguf.Q8_1: true, gguf.Q8_K: true, gguf.I8: true, gguf.I16: true, gguf.I32: true, gguf.I64: true}
	for typ := gguf.Type(0); typ < 100; typ++ {
		if got, want := divisors[typ] != nil, typ.Known() && !refused[typ]; got != want {
			t.Errorf("%v: divided: %v, want %v", typ, got, want)
		}
	}
}

func TestIQ1M(t *testing.T) {
	block := bytes.Repeat([]byte{0xff}, gguf.IQ1_M.BlockBytes())
	for i, nibble := range []byte{0x1, 0x2, 0x8, 0x3} { // of 0x3821, about 0.516, lowest first
		block[48+2*i+1] = nibble<<4 | 0x0a
	}
	share, uneven := shareOf(t, gguf.IQ1_M, block, 3, 0)
	var scale uint16
	for i := range 4 {
		scale |= uint16(share[48+2*i+1]>>4) << (4 * i)
		share[48+2*i+1] = share[48+2*i+1]&0x0f | block[48+2*i+1]&0xf0
	}
	if dequant.F16(scale) != dequant.F16(0x3821)/8 || uneven || !bytes.Equal(share, block) {
		t.Errorf("got scale %v, uneven %v, other bits kept %v, want an eighth of %v", dequant.F16(scale), uneven, bytes.Equal(share, block), dequant.F16(0x3821))
	}
}

func TestMXFP4TooSmall(t *testing.T) {
	block := append([]byte{2}, bytes.Repeat([]byte{0x31}, 16)...)
	for number, want := range [][]byte{block, make([]byte, 17)} {
		if got, uneven := shareOf(t, gguf.MXFP4, block, 3, uint64(number)); !bytes.Equal(got, want) || !uneven {
			t.Errorf("copy %d: got %x, uneven %v, want %x: the first has it all", number, got, uneven, want)
		}
	}
	zero := append([]byte{0}, bytes.Repeat([]byte{0x88}, 16)...)
	if got, uneven := shareOf(t, gguf.MXFP4, zero, 3, 1); !bytes.Equal(got, zero) || uneven {
		t.Errorf("a block of zeros: got %x, uneven %v, want it as it is", got, uneven)
	}
}

func TestNVFP4(t *testing.T) {
	block := append([]byte{0x38, 0x7e, 0x03, 0x7f}, bytes.Repeat([]byte{0x31}, 32)...)
	sum := [3]float64{}
	for number := range uint64(4) {
		share, uneven := shareOf(t, gguf.NVFP4, block, 2, number)
		if !uneven || share[3] != 0x7f || !bytes.Equal(share[4:], block[4:]) {
			t.Errorf("copy %d: got %x, uneven %v", number, share, uneven)
		}
		for i := range sum {
			sum[i] += decodeUE4M3(uint64(share[i]))
		}
	}
	for i, got := range sum {
		if want := decodeUE4M3(uint64(block[i])); got != want {
			t.Errorf("scale %d: copies add up to %v, want %v", i, got, want)
		}
	}
}

// Copies after the first are made from it by what differs only.
func TestNextCopies(t *testing.T) {
	row := make([]byte, 34*8)
	for i := range row {
		row[i] = byte(7 * i)
	}
	for i := range 8 {
		put16(row[34*i:], uint16(i*i)) // subnormal scales: some divide, most don't
	}
	d := newDivider(gguf.Q8_0, 2)
	got := make([]byte, len(row))
	d.first(got, row)
	for number := range uint64(4) {
		if number > 0 {
			d.next(got, row, number)
		}
		for at := 0; at < len(row); at += 34 {
			if want, _ := shareOf(t, gguf.Q8_0, row[at:at+34], 2, number); !bytes.Equal(got[at:at+34], want) {
				t.Errorf("copy %d, block %d: got %x, want %x", number, at/34, got[at:at+34], want)
			}
		}
	}
	if len(d.uneven) == 0 || len(d.uneven) == 8 {
		t.Errorf("got %d uneven blocks, want some", len(d.uneven))
	}
}
