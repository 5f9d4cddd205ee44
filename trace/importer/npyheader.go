package importer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A NumPy file (.npy, versions 1 to 3):
//
//	93 "NUMPY" | major u8 | minor u8 | n: u16 (version 1) or u32 | n bytes of text | numbers
//
// The text is a Python dict: {'descr': '<i4', 'fortran_order': False, 'shape': (7, 2), }.
// (Specification: numpy.lib.format.) The dict is read by the one pattern that
// NumPy writes; nothing else, arrays of objects least of all, is taken.
const (
	npyMagic     = "\x93NUMPY"
	maxNpyHeader = 64 << 10
	maxNpyDims   = 8
)

var npyDict = regexp.MustCompile(`^\{ *'descr': *'([^']*)', *'fortran_order': *(True|False), *'shape': *\(([0-9L, ]*)\),? *\}\s*$`)

// npyHeader is what is before the numbers.
type npyHeader struct {
	kind    byte // 'i', 'u' or 'f'
	width   int  // bytes of a number
	order   binary.ByteOrder
	fortran bool // the first dimension is the fastest
	shape   []int64
	size    int64 // bytes of the header
}

// readNpyHeader reads the header of the file that r holds from its start. The
// error is what is wrong, or that of r.
func readNpyHeader(r io.Reader) (*npyHeader, error) {
	var head [12]byte
	if _, err := io.ReadFull(r, head[:10]); err != nil {
		return nil, err
	}
	if string(head[:6]) != npyMagic {
		return nil, fmt.Errorf("it begins with %q, a NumPy array with %q", head[:6], npyMagic)
	}
	size, length := int64(10), int64(binary.LittleEndian.Uint16(head[8:]))
	switch major := head[6]; major {
	case 1:
	case 2, 3:
		if _, err := io.ReadFull(r, head[10:]); err != nil {
			return nil, err
		}
		size, length = 12, int64(binary.LittleEndian.Uint32(head[8:]))
	default:
		return nil, fmt.Errorf("it has version %d of the NumPy format, want 1 to 3", major)
	}
	if length > maxNpyHeader {
		return nil, fmt.Errorf("the header has %d bytes, the limit is %d", length, maxNpyHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	h, err := parseNpyDict(text)
	if err != nil {
		return nil, err
	}
	h.size = size + length
	return h, nil
}

func parseNpyDict(text []byte) (*npyHeader, error) {
	m := npyDict.FindSubmatch(bytes.TrimSpace(text))
	if m == nil {
		return nil, fmt.Errorf("the header %.80q is not of the form {'descr': '<i4', 'fortran_order': False, 'shape': (7, 2), }", text)
	}
	h := &npyHeader{fortran: string(m[2]) == "True", shape: []int64{}}
	if err := h.setType(string(m[1])); err != nil {
		return nil, err
	}
	count := int64(1)
	for _, part := range strings.Split(string(m[3]), ",") {
		part = strings.TrimSuffix(strings.TrimSpace(part), "L") // Python 2 wrote long numbers so
		if part == "" {
			continue
		}
		d, err := strconv.ParseInt(part, 10, 64)
		if err != nil || len(h.shape) == maxNpyDims {
			return nil, fmt.Errorf("the shape (%s) is none of at most %d whole numbers", m[3], maxNpyDims)
		}
		if d > 0 && count > math.MaxInt64/int64(h.width)/d {
			return nil, fmt.Errorf("the shape (%s) is larger than any file", m[3])
		}
		count *= max(d, 1)
		h.shape = append(h.shape, d)
	}
	return h, nil
}

// setType reads a type such as "<i4".
func (h *npyHeader) setType(descr string) error {
	unwanted := fmt.Errorf("the array's type is %q, want whole numbers (i1 to i8, u1 to u8) or fractions (f2, f4, f8)", descr)
	if len(descr) != 3 {
		return unwanted
	}
	h.kind, h.width = descr[1], int(descr[2]-'0')
	switch descr[0] {
	case '<', '|':
		h.order = binary.LittleEndian
	case '>':
		h.order = binary.BigEndian
	default:
		return unwanted
	}
	ok := false
	switch h.width {
	case 1:
		ok = h.kind == 'i' || h.kind == 'u'
	case 2, 4, 8:
		ok = h.kind == 'i' || h.kind == 'u' || h.kind == 'f'
	}
	if !ok {
		return unwanted
	}
	return nil
}

// whole reports an array of whole numbers.
func (h *npyHeader) whole() bool { return h.kind != 'f' }

// form is the array's make, for messages: "int32 [7 2 2]".
func (h *npyHeader) form() string {
	return fmt.Sprintf("%s%d %v", map[byte]string{'i': "int", 'u': "uint", 'f': "float"}[h.kind], 8*h.width, h.shape)
}

// int is a whole number of the array; one that int32 does not hold is its
// nearest, which is no id either.
func (h *npyHeader) int(b []byte) int32 {
	u := h.bits(b)
	if h.kind == 'u' {
		return int32(min(u, math.MaxInt32))
	}
	n := int64(u<<(64-8*h.width)) >> (64 - 8*h.width)
	return int32(max(min(n, math.MaxInt32), math.MinInt32))
}

// float is a number of the array.
func (h *npyHeader) float(b []byte) float64 {
	u := h.bits(b)
	switch {
	case h.kind == 'i':
		return float64(int64(u<<(64-8*h.width)) >> (64 - 8*h.width))
	case h.kind == 'u':
		return float64(u)
	case h.width == 8:
		return math.Float64frombits(u)
	case h.width == 4:
		return float64(math.Float32frombits(uint32(u)))
	}
	return float16(uint16(u))
}

func (h *npyHeader) bits(b []byte) uint64 {
	switch h.width {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(h.order.Uint16(b))
	case 4:
		return uint64(h.order.Uint32(b))
	}
	return h.order.Uint64(b)
}

// float16 is the value of an IEEE 754 half.
func float16(h uint16) float64 {
	sign, exp, frac := 1-2*float64(h>>15), int(h>>10&31), float64(h&1023)
	switch {
	case exp == 0:
		return sign * math.Ldexp(frac, -24)
	case exp < 31:
		return sign * math.Ldexp(frac+1024, exp-25)
	case frac == 0:
		return sign * math.Inf(1)
	}
	return math.NaN()
}
