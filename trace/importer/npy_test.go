package importer

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
)

// npyText is an array as NumPy saves it: the header padded to 64 bytes.
func npyText(descr string, shape []int, data string) string {
	dims := ""
	for _, d := range shape {
		dims += fmt.Sprintf("%d, ", d)
	}
	if len(shape) != 1 {
		dims = strings.TrimSuffix(dims, ", ")
	}
	return npyDictText(fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, dims), data)
}

func npyDictText(dict, data string) string {
	for (10+len(dict)+1)%64 != 0 {
		dict += " "
	}
	return npyMagic + "\x01\x00" + string(binary.LittleEndian.AppendUint16(nil, uint16(len(dict)+1))) + dict + "\n" + data
}

// int32Text are numbers as they lie in files.
func int32Text(numbers ...int32) string {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return string(b)
}

func float64Text(numbers ...float64) string {
	var b []byte
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(n))
	}
	return string(b)
}

func TestNpyHeader(t *testing.T) {
	version2 := npyMagic + "\x02\x00" + string(binary.LittleEndian.AppendUint32(nil, 60)) + fmt.Sprintf("%-59s\n", "{'descr': '|u1', 'fortran_order': False, 'shape': (3L,), }")
	for text, want := range map[string]string{
		npyText("<i4", []int{7, 2, 2}, ""): "int32 [7 2 2]",
		npyText(">f8", []int{}, ""):        "float64 []",
		npyText("<f2", []int{5}, ""):       "float16 [5]",
		npyText("|u1", []int{0, 3}, ""):    "uint8 [0 3]",
		version2:                           "uint8 [3]",
	} {
		h, err := readNpyHeader(strings.NewReader(text))
		if err != nil || h.form() != want || h.size != int64(len(text)) {
			t.Errorf("got %+v, %v; want %s in %d bytes", h, err, want, len(text))
		}
	}
}

func TestDamagedNpyHeaders(t *testing.T) {
	header := func(dict string) string { return npyDictText(dict, "") }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "EOF"},
		{"no array", strings.Repeat("x", 20), "it begins with"},
		{"version 9", npyMagic + "\x09\x00\x00\x00", "version 9 of the NumPy format"},
		{"cut", npyText("<i4", []int{1}, "")[:30], "unexpected EOF"},
		{"long header", npyMagic + "\x02\x00\x00\x00\x00\x10", "the header has 268435456 bytes"},
		{"no dict", header("hello"), "is not of the form"},
		{"objects", header("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }"), `the array's type is "|O"`},
		{"records", header("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (3,), }"), "is not of the form"},
		{"complex", header("{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }"), `type is "<c8"`},
		{"int of 3 bytes", header("{'descr': '<i3', 'fortran_order': False, 'shape': (3,), }"), `type is "<i3"`},
		{"float of 1 byte", header("{'descr': '|f1', 'fortran_order': False, 'shape': (3,), }"), `type is "|f1"`},
		{"byte order", header("{'descr': '?i4', 'fortran_order': False, 'shape': (3,), }"), `type is "?i4"`},
		{"negative shape", header("{'descr': '<i4', 'fortran_order': False, 'shape': (-3,), }"), "is not of the form"},
		{"shape of words", header("{'descr': '<i4', 'fortran_order': False, 'shape': (1 2), }"), "none of at most 8 whole numbers"},
		{"9 dimensions", header("{'descr': '<i4', 'fortran_order': False, 'shape': (" + strings.Repeat("1,", 9) + "), }"), "none of at most 8"},
		{"2^64", header("{'descr': '<i4', 'fortran_order': False, 'shape': (18446744073709551616,), }"), "whole numbers"},
		{"larger than any file", header("{'descr': '<i4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"), "larger than any file"},
		{"zero hides size", header("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296), }"), "larger than any file"},
	} {
		if h, err := readNpyHeader(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %+v, %v; want an error with %q", c.name, h, err, c.want)
		}
	}
}

func TestNpyNumbers(t *testing.T) {
	for _, c := range []struct {
		descr, data string
		int         int32
		float       float64
	}{
		{"|i1", "\xff", -1, -1}, {"|u1", "\xff", 255, 255}, {"<i2", "\xfe\xff", -2, -2}, {">i2", "\xff\xfe", -2, -2},
		{"<u2", "\xfe\xff", 65534, 65534}, {"<i4", "\x00\x00\x00\x80", math.MinInt32, math.MinInt32}, {"<u4", "\xff\xff\xff\xff", math.MaxInt32, math.MaxUint32},
		{"<i8", "\x07\x00\x00\x00\x00\x00\x00\x00", 7, 7}, {"<i8", "\x00\x00\x00\x00\x01\x00\x00\x00", math.MaxInt32, 1 << 32}, {"<u8", "\xff\xff\xff\xff\xff\xff\xff\xff", math.MaxInt32, 1 << 64},
		{"<f2", "\x00\xc0", 0, -2}, {"<f2", "\x01\x00", 0, math.Ldexp(1, -24)}, {"<f2", "\x00\x7c", 0, math.Inf(1)}, {"<f4", "\x00\x00\x20\xc1", 0, -10}, {">f8", "\x3f\xe0\x00\x00\x00\x00\x00\x00", 0, 0.5},
	} {
		h, err := readNpyHeader(strings.NewReader(npyText(c.descr, []int{1}, "")))
		if err != nil {
			t.Fatal(err)
		}
		if got := h.float([]byte(c.data)); got != c.float {
			t.Errorf("%s %q is %v, want %v", c.descr, c.data, got, c.float)
		}
		if h.whole() {
			if got := h.int([]byte(c.data)); got != c.int {
				t.Errorf("%s %q is %v, want %v", c.descr, c.data, got, c.int)
			}
		}
	}
}
