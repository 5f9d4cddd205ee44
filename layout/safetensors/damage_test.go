package safetensors_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/safetensors"
)

func TestDamagedFiles(t *testing.T) {
	notOurs, damaged, truncated := safetensors.ErrNotSafetensors, safetensors.ErrDamaged, safetensors.ErrTruncated
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	file := func(header string, data int) []byte { return oneFile(header, data).Files["m.safetensors"] }
	one := func(entry string) []byte { return file(`{"a":`+entry+`}`, 8) }
	for _, c := range []struct {
		name string
		data []byte
		is   error
		at   int64 // -2: not looked at
		want string
	}{
		{"empty", nil, notOurs, 0, "0 bytes, fewer"},
		{"seven bytes", make([]byte, 7), notOurs, 0, "7 bytes, fewer"},
		{"length 0", length(0, "{}"), notOurs, 0, "would be 0"},
		{"length over the limit", length(100_000_001, "{}"), notOurs, 0, "would be 100000001, want 2 to 100000000"},
		{"length 2^64-1", length(1<<64-1, "{}"), notOurs, 0, "want 2 to"},
		{"a GGUF file", append([]byte("GGUF\x03\x00\x00\x00"), "............"...), notOurs, 0, "would be"},
		{"length over the file", length(3, "{}"), truncated, 8, "the header has 3 bytes, the file 2 more; get the file again"},
		{"an array", length(2, "[]"), notOurs, 8, `starts with '['`},
		{"a space first", length(3, " {}"), notOurs, 8, `starts with ' '`},
		{"no UTF-8", length(4, "{\"\xff}"), damaged, 8, "not UTF-8"},
		{"cut JSON", length(4, `{"a"`), damaged, -2, "no valid JSON"},
		{"no JSON", length(4, "{,,}"), damaged, -2, "no valid JSON"},
		{"two objects", length(4, "{}{}"), damaged, 10, "the header is followed by something"},
		{"name twice", file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), damaged, -2, `the header has "a" twice`},
		{"key twice", one(`{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}`), damaged, -2, `tensor "a" has "dtype" twice`},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), damaged, -2, "twice"},
		{"metadata no object", file(`{"__metadata__":[]}`, 0), damaged, -2, "__metadata__ is [, want an object"},
		{"metadata no string", file(`{"__metadata__":{"k":1}}`, 0), damaged, -2, `k is 1, want a string`},
		{"long name", file(`{"`+strings.Repeat("n", 5000)+`":{}}`, 0), damaged, -2, "a name of 5000 bytes, the limit is 4096"},
		{"entry no object", one(`7`), damaged, -2, `tensor "a" is 7, want an object`},
		{"no dtype", one(`{"shape":[8],"data_offsets":[0,8]}`), damaged, -2, "lacks one of"},
		{"no shape", one(`{"dtype":"U8","data_offsets":[0,8]}`), damaged, -2, "lacks one of"},
		{"no offsets", one(`{"dtype":"U8","shape":[8]}`), damaged, -2, "lacks one of"},
		{"dtype no string", one(`{"dtype":4,"shape":[8],"data_offsets":[0,8]}`), damaged, -2, "dtype is 4, want a string"},
		{"shape no array", one(`{"dtype":"U8","shape":8,"data_offsets":[0,8]}`), damaged, -2, "shape is 8, want an array"},
		{"shape nested", one(`{"dtype":"U8","shape":[[8]],"data_offsets":[0,8]}`), damaged, -2, "shape holds [, want whole numbers"},
		{"shape negative", one(`{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}`), damaged, -2, "shape holds -8"},
		{"shape fraction", one(`{"dtype":"U8","shape":[8.5],"data_offsets":[0,8]}`), damaged, -2, "shape holds 8.5"},
		{"shape 2^63", one(`{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]}`), damaged, -2, "shape holds 9223372036854775808"},
		{"33 dimensions", one(`{"dtype":"U8","shape":[` + strings.Repeat("1,", 32) + `8],"data_offsets":[0,8]}`), damaged, -2, "more than 32 numbers"},
		{"shape overflows", one(`{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,8]}`), damaged, -2, "does not fit F64"},
		{"one offset", one(`{"dtype":"U8","shape":[8],"data_offsets":[8]}`), damaged, -2, "data_offsets [8], want the first byte"},
		{"three offsets", one(`{"dtype":"U8","shape":[8],"data_offsets":[0,4,8]}`), damaged, -2, "more than 2 numbers"},
		{"offsets turned", one(`{"dtype":"U8","shape":[8],"data_offsets":[8,0]}`), damaged, -2, "data_offsets [8 0]"},
		{"size is not the shape's", one(`{"dtype":"F32","shape":[3],"data_offsets":[0,8]}`), damaged, -2, `tensor "a" has 8 bytes, which does not fit F32 [3]`},
		{"half a byte", one(`{"dtype":"F4","shape":[3],"data_offsets":[0,1]}`), damaged, -2, "does not fit F4"},
		{"ends beyond the file", file(`{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}`, 8), truncated, -1, `tensor "a" ends at byte 9 of the data, which has 8: 1 bytes are missing`},
		{"ends at 2^63-1", one(`{"dtype":"Z","shape":[8],"data_offsets":[0,9223372036854775807]}`), truncated, -1, "get the file again"},
		{"overlap", file(`{"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), damaged, -2, `tensor "b" overlaps tensor "a"`},
		{"hole", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), damaged, -2, `2 bytes between tensor "a" and tensor "b"`},
		{"hole first", file(`{"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8), damaged, -2, `4 bytes between the header and tensor "b"`},
		{"bytes behind", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 8), damaged, -2, `6 bytes behind tensor "a"`},
		{"data without tensors", file(`{}`, 8), damaged, 10, `8 bytes behind the header`},
		{"deep nesting", one(`{"x":` + strings.Repeat("[", 20000) + `}`), damaged, -2, "no valid JSON"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": c.data}}
			_, err := safetensors.Open(fsys, "m.safetensors")
			var fe *safetensors.FormatError
			if !errors.Is(err, c.is) || !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FormatError with %v", err, c.is)
			}
			if fe.Path != "m.safetensors" || (c.at != -2 && fe.Offset != c.at) {
				t.Errorf("got %s at byte %d, want m.safetensors at byte %d (%v)", fe.Path, fe.Offset, c.at, err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want it to contain %q", err, c.want)
			}
			if n := fsys.Opens.Load(); n != 0 {
				t.Errorf("%d files are still open, want 0", n)
			}
		})
	}
}

// A file cut anywhere is refused, never read wrongly.
func TestCutAnywhere(t *testing.T) {
	whole := oneFile(header, 22).Files["m.safetensors"]
	for n := range whole {
		_, err := safetensors.Open(&memfs.ReadOnly{Files: map[string][]byte{"m.safetensors": whole[:n]}}, "m.safetensors")
		if !errors.Is(err, safetensors.ErrTruncated) && !(n < 8 && errors.Is(err, safetensors.ErrNotSafetensors)) {
			t.Errorf("cut to %d bytes: got %v, want %v", n, err, safetensors.ErrTruncated)
		}
	}
}
