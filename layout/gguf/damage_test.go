package gguf_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// Places in the file that small writes.
const (
	atVersion = 4
	atTensors = 8
	atKeys    = 16
	atKeyLen  = 24
	atKind    = 33
	atAName   = 49
	atADims   = 50
	atADim    = 54
	atAType   = 62
	atAOffset = 66
	atBNameLn = 74
	atBName   = 82
	atBOffset = 99
	atData    = 128
)

// small is a file of one key and two tensors of 64 bytes each.
func small(t testing.TB) []byte {
	t.Helper()
	w := &gguf.Writer{}
	w.Set("k", uint32(7))
	add(w, "a", gguf.I8, 64)
	add(w, "b", gguf.I8, 64)
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != atData+128 {
		t.Fatalf("the small file has %d bytes, want %d: the places above are wrong", len(b), atData+128)
	}
	return b
}

func put32(at int, v uint32) func([]byte) []byte {
	return func(b []byte) []byte { binary.LittleEndian.PutUint32(b[at:], v); return b }
}

func put64(at int, v uint64) func([]byte) []byte {
	return func(b []byte) []byte { binary.LittleEndian.PutUint64(b[at:], v); return b }
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:n] } }

// withKey replaces the file by one with this metadata value.
func withKey(key string, value any) func([]byte) []byte {
	return func([]byte) []byte {
		w := &gguf.Writer{Unchecked: true}
		w.Set(key, value)
		add(w, "a", gguf.I8, 64)
		b, err := w.Bytes()
		if err != nil {
			panic(err) // a test's own mistake
		}
		return b
	}
}

// patch applies one change after another.
func patch(changes ...func([]byte) []byte) func([]byte) []byte {
	return func(b []byte) []byte {
		for _, change := range changes {
			b = change(b)
		}
		return b
	}
}

func TestDamagedFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func([]byte) []byte
		is     error
		offset int64 // -1: no place
		want   string
	}{
		{"empty", cut(0), gguf.ErrTruncated, 0, "it is empty; get the file again"},
		{"zeros", put32(0, 0), gguf.ErrNotGGUF, 0, "starts with zeros, as an unfinished download does"},
		{"two bytes", cut(2), gguf.ErrNotGGUF, 0, `starts with "GG"`},
		{"bad magic", put32(0, 0x4c4d4747), gguf.ErrNotGGUF, 0, `starts with "GGML"`},
		{"magic only", cut(4), gguf.ErrTruncated, 4, "version needs 4 bytes"},
		{"version 0", put32(atVersion, 0), gguf.ErrVersion, 8, "version 0, want 2 or 3"},
		{"version 1", put32(atVersion, 1), gguf.ErrVersion, 8, "version 1, want 2 or 3"},
		{"version 4", put32(atVersion, 4), gguf.ErrVersion, 8, "version 4"},
		{"version 99", put32(atVersion, 99), gguf.ErrVersion, 8, "version 99"},
		{"big-endian version 4", put32(atVersion, 4<<24), gguf.ErrVersion, 8, "version 4"},
		{"little-endian numbers after a big-endian version", put32(atVersion, 3<<24), gguf.ErrDamaged, 8, "tensor count is 144115188075855872"},
		{"cut in the counts", cut(15), gguf.ErrTruncated, 8, "tensor count needs 8 bytes, the file has 7 left"},
		{"cut after the tensor count", cut(16), gguf.ErrTruncated, 8, "tensor count is 2"},
		{"tensor count 2^40", put64(atTensors, 1<<40), gguf.ErrDamaged, 8, "tensor count is 1099511627776, the limit is"},
		{"tensor count 2^64-1", put64(atTensors, 1<<64-1), gguf.ErrDamaged, 8, "the limit is"},
		{"tensor count over the size", put64(atTensors, 1000), gguf.ErrTruncated, 8, "needs at least 25000 bytes, the file has 232"},
		{"one tensor too many", put64(atTensors, 3), gguf.ErrDamaged, 107, "is empty"},
		{"key count 2^40", put64(atKeys, 1<<40), gguf.ErrDamaged, 16, "metadata count is"},
		{"key count over the size", put64(atKeys, 60000), gguf.ErrTruncated, 16, "metadata count is 60000"},
		{"key of 2^63 bytes", put64(atKeyLen, 1<<63), gguf.ErrDamaged, 24, "string of 9223372036854775808 bytes, the limit is 65535"},
		{"key over the end", put64(atKeyLen, 1000), gguf.ErrTruncated, 32, "metadata key 0 needs 1000 bytes"},
		{"empty key", put64(atKeyLen, 0), gguf.ErrDamaged, 24, "metadata key 0 is empty"},
		{"unknown kind", put32(atKind, 13), gguf.ErrDamaged, 33, `"k" has kind 13`},
		{"kind 2^32-1", put32(atKind, 1<<32-1), gguf.ErrDamaged, 33, "kind 4294967295"},
		{"huge string", patch(put32(atKind, 8), put64(atKind+4, 1<<40)), gguf.ErrDamaged, 37, `metadata key "k" is a string of 1099511627776 bytes`},
		{"string over the end", patch(put32(atKind, 8), put64(atKind+4, 1<<20)), gguf.ErrTruncated, 45, `metadata key "k" needs 1048576 bytes`},
		{"huge array", patch(put32(atKind, 9), put32(atKind+4, 4), put64(atKind+8, 1<<62)), gguf.ErrDamaged, 37, "array of 4611686018427387904 elements"},
		{"huge array of strings", patch(put32(atKind, 9), put32(atKind+4, 8), put64(atKind+8, 1<<62)), gguf.ErrDamaged, 37, "more than a header holds"},
		{"array over the end", patch(put32(atKind, 9), put32(atKind+4, 4), put64(atKind+8, 1<<10)), gguf.ErrTruncated, 49, "array of 1024 elements"},
		{"array of arrays", patch(put32(atKind, 9), put32(atKind+4, 9)), gguf.ErrDamaged, 37, "array of array, which is not supported"},
		{"array of kind 77", patch(put32(atKind, 9), put32(atKind+4, 77)), gguf.ErrDamaged, 37, "array of kind 77"},
		{"bool of 2", patch(put32(atKind, 7), put32(atKind+4, 2)), gguf.ErrDamaged, 37, "bool of value 2"},
		{"key twice", func([]byte) []byte {
			w := &gguf.Writer{Unchecked: true}
			w.Set("k", uint8(1))
			w.Set("k", uint8(2))
			b, _ := w.Bytes()
			return append(b, make([]byte, 64)...)
		}, gguf.ErrDamaged, 38, `metadata key "k" is there twice`},
		{"name of 2000 bytes", put64(atBNameLn, 2000), gguf.ErrDamaged, 74, "name of tensor 1 is a string of 2000 bytes"},
		{"tensor twice", func(b []byte) []byte { b[atBName] = 'a'; return b }, gguf.ErrDamaged, 74, `tensor "a" is there twice`},
		{"five dimensions", put32(atADims, 5), gguf.ErrDamaged, 50, "5 dimensions, want at most 4"},
		{"2^32-1 dimensions", put32(atADims, 1<<32-1), gguf.ErrDamaged, 50, "4294967295 dimensions"},
		{"dimension 0", put64(atADim, 0), gguf.ErrDamaged, 54, "dimension 0 is 0"},
		{"dimension -1", put64(atADim, 1<<64-1), gguf.ErrDamaged, 54, "dimension 0 is 18446744073709551615"},
		{"bytes overflow", patch(put64(atADim, 1<<62), put32(atAType, 0)), gguf.ErrDamaged, 41, "overflow 63 bits of bytes"},
		{"dimensions overflow", func([]byte) []byte {
			w := &gguf.Writer{Unchecked: true}
			w.TensorBytes("a", 0, []int64{1 << 32, 1 << 32}, make([]byte, 64))
			b, _ := w.Bytes()
			return b
		}, gguf.ErrDamaged, 24, "overflow 63 bits"},
		{"unknown type", put32(atAType, 208), gguf.ErrType, 41, `tensor "a"`},
		{"withdrawn type", put32(atAType, 31), gguf.ErrType, 41, "number 31 was Q4_0_4_4, which ggml has withdrawn; get the model as Q4_0"},
		{"row is no whole block", put32(atAType, uint32(gguf.Q4_K)), gguf.ErrDamaged, 41, "rows of 64 elements are no multiple of Q4_K's block of 256"},
		{"offset not aligned", put64(atBOffset, 65), gguf.ErrDamaged, -1, `tensor "b" starts at byte 65 of the data, not aligned to 32`},
		{"offset beyond the file", put64(atBOffset, 1<<30), gguf.ErrTruncated, 74, `tensor "b" starts at byte 1073741824`},
		{"offset 2^64-32", put64(atBOffset, 1<<64-32), gguf.ErrTruncated, 74, "get the file again"},
		{"tensors overlap", put64(atBOffset, 32), gguf.ErrDamaged, atData + 32, `tensors "a" and "b" overlap`},
		{"hole before the first tensor", patch(put64(atAOffset, 32), put64(atADim, 32)), gguf.ErrDamaged, atData, `the first tensor, "a", starts 32 bytes after the start of the data`},
		{"hole between tensors", put64(atADim, 32), gguf.ErrDamaged, atData, `tensor "a" takes 32 bytes by its type I8 and its dimensions [32], but the next, "b", starts 64 bytes after it`},
		{"another size of a type", put32(atAType, uint32(gguf.Q8_1)), gguf.ErrDamaged, atData + 64, `tensors "a" and "b" overlap`},
		{"tensors at one place", put64(atBOffset, 0), gguf.ErrDamaged, atData, "overlap"},
		{"order turned", patch(put64(atAOffset, 64), put64(atBOffset, 0), cut(atData+100)), gguf.ErrTruncated, -1, `tensor "a" ends at byte 256`},
		{"cut in the data", cut(atData + 100), gguf.ErrTruncated, -1, `tensor "b" ends at byte 256, the file at 228: 28 bytes are missing`},
		{"cut before the data", cut(atData), gguf.ErrTruncated, -1, "128 bytes are missing"},
		{"cut in the padding", cut(atData - 5), gguf.ErrTruncated, 107, "padding before the tensor data needs 21 bytes"},
		{"cut in the tensor table", cut(80), gguf.ErrTruncated, 74, "name of tensor 1 needs 8 bytes"},
		{"size 2^63-1", put64(atADim, 1<<63-1), gguf.ErrTruncated, -1, `tensor "a" ends at byte 9223372036854775807`},
		{"alignment 0", withKey("general.alignment", uint32(0)), gguf.ErrDamaged, -1, "general.alignment is 0 (uint32)"},
		{"alignment 48", withKey("general.alignment", uint32(48)), gguf.ErrDamaged, -1, "want a power of two"},
		{"alignment 2^31", withKey("general.alignment", uint32(1<<31)), gguf.ErrDamaged, -1, "up to 16777216"},
		{"alignment -32", withKey("general.alignment", int32(-32)), gguf.ErrDamaged, -1, "general.alignment is -32 (int32)"},
		{"alignment is a string", withKey("general.alignment", "32"), gguf.ErrDamaged, -1, "general.alignment is 32 (string)"},
		{"alignment past the end", withKey("general.alignment", uint32(1<<20)), gguf.ErrTruncated, 90, "padding before the tensor data"},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := &memfs.ReadOnly{Files: map[string][]byte{"m.gguf": c.change(small(t))}}
			_, err := gguf.Open(fsys, "m.gguf")
			var fe *gguf.FormatError
			if !errors.Is(err, c.is) || !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FormatError with %v", err, c.is)
			}
			if fe.Path != "m.gguf" || fe.Offset != c.offset {
				t.Errorf("got %s at byte %d, want m.gguf at byte %d (%v)", fe.Path, fe.Offset, c.offset, err)
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
	whole := small(t)
	for n := range whole {
		_, err := gguf.Open(&memfs.ReadOnly{Files: map[string][]byte{"m.gguf": whole[:n]}}, "m.gguf")
		if !errors.Is(err, gguf.ErrTruncated) && !(n > 0 && n < 4 && errors.Is(err, gguf.ErrNotGGUF)) {
			t.Errorf("cut to %d bytes: got %v, want %v", n, err, gguf.ErrTruncated)
		}
	}
}

// The limit of a header holds for a sparse file that claims more.
func TestHeaderLimit(t *testing.T) {
	b := small(t)
	b = patch(put32(atKind, 9), put32(atKind+4, 0), put64(atKind+8, 1<<28))(b)
	_, err := gguf.Open(sparseFS{&memfs.ReadOnly{Files: map[string][]byte{"m.gguf": b}}}, "m.gguf")
	if !errors.Is(err, gguf.ErrDamaged) || !strings.Contains(err.Error(), "beyond the limit of a header") {
		t.Errorf("got %v, want %v and the limit", err, gguf.ErrDamaged)
	}
}
