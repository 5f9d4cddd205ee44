package learned

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"outrider/layout"
	"outrider/router"
)

var savedDims = Dims{Shape: small, Embedding: 2, Hidden: 3}

func TestSaveAndLoad(t *testing.T) {
	m := drawn(t, savedDims, 4)
	b := saved(t, m)
	got, err := Load(iotest.OneByteReader(bytes.NewReader(b)))
	if err != nil {
		t.Fatal(err)
	}
	if got.Name() != "drawn" || !got.Dims().Shape.Equal(small) || got.Dims().Embedding != 2 || got.Dims().Hidden != 3 {
		t.Errorf("got %q of %+v, want what was saved", got.Name(), got.Dims())
	}
	if !reflect.DeepEqual(got.Parameters(), m.Parameters()) {
		t.Error("parameters: got others than were saved")
	}
	if !bytes.Equal(saved(t, got), b) {
		t.Error("saved again: got other bytes")
	}
}

// TestLayoutOfTheFile holds the places that the package's comment names.
func TestLayoutOfTheFile(t *testing.T) {
	m := drawn(t, savedDims, 4)
	b := saved(t, m)
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	if string(b[:8]) != "\x93ORLEARN" || u32(8) != 1 {
		t.Errorf("got magic %q and version %d", b[:8], u32(8))
	}
	for i, want := range []int{router.FeatureVersion, router.FeatureColumns(), 4, 16, 3, 2, 3} {
		if got := u32(12 + 4*i); got != want {
			t.Errorf("number %d of the header: got %d, want %d", i, got, want)
		}
	}
	if string(b[40:47]) != "\x05\x00drawn" || u32(47+4*2) != 5 {
		t.Errorf("got name %q and third layer id %d, want drawn and 5", b[40:47], u32(47+4*2))
	}
	p := m.Parameters()
	if first := math.Float32frombits(binary.LittleEndian.Uint32(b[47+16:])); first != p.Centre[0] {
		t.Errorf("first centre: got %v, want %v", first, p.Centre[0])
	}
	last := p.Layers[3].Target
	if got := math.Float32frombits(binary.LittleEndian.Uint32(b[len(b)-8:])); got != last[len(last)-1] {
		t.Errorf("last target: got %v, want %v", got, last[len(last)-1])
	}
	if want := 47 + 4*(4+savedDims.Numbers()) + 4; len(b) != want {
		t.Errorf("length: got %d, want %d", len(b), want)
	}
}

// reseal makes the checksum right again.
func reseal(b []byte) []byte {
	end := len(b) - tailBytes
	binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], castagnoli))
	return b
}

func TestLoadDamaged(t *testing.T) {
	set := func(at int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[at:], v); return reseal(b) }
	}
	const dims, name = headBytes, headBytes + dimBytes
	ids := name + len("drawn")
	centre := ids + 4*small.Layers
	scale := centre + 4*(router.FeatureColumns()+1)
	nan := []byte{0, 0, 0xc0, 0x7f}
	tests := []struct {
		name     string
		damage   func([]byte) []byte
		sentinel error
		want     string
	}{
		{"empty", func([]byte) []byte { return nil }, ErrNotModel, `begins with ""`},
		{"short magic", func(b []byte) []byte { return b[:7] }, ErrNotModel, "begins with"},
		{"magic", set(0, 'x'), ErrNotModel, "a learned forecast with"},
		{"version cut", func(b []byte) []byte { return b[:10] }, ErrNotModel, "begins with"},
		{"version zero", set(8, 0), ErrVersion, "version 0, this program reads 1"},
		{"version next", set(8, 2), ErrVersion, "version 2"},
		{"header cut", func(b []byte) []byte { return b[:30] }, ErrDamaged, "at byte 30: the file ends in its header"},
		{"features", set(dims, 0xff), ErrFeatures, "train it anew"},
		{"columns", set(dims+4, 0xff), ErrFeatures, "train it anew"},
		{"layers zero", set(dims+8, 0), ErrDamaged, "0 layers"},
		{"layers huge", set(dims+8, 0xff, 0xff, 0xff, 0xff), ErrDamaged, "layers"},
		{"experts zero", set(dims+12, 0), ErrDamaged, "0 experts"},
		{"experts huge", set(dims+12, 0, 0, 2), ErrDamaged, "131072 experts"},
		{"too many numbers", set(dims+12, 0, 0xff, 0, 0, 3, 0, 0, 0, 64), ErrDamaged, "the network has"},
		{"top-k", set(dims+16, 17), ErrDamaged, "top-k 17"},
		{"embedding zero", set(dims+20, 0), ErrDamaged, "0 dimensions"},
		{"embedding huge", set(dims+20, 0, 0, 0, 0x80), ErrDamaged, "dimensions"},
		{"hidden zero", set(dims+24, 0), ErrDamaged, "0 units"},
		{"hidden huge", set(dims+24, 0, 0, 0, 0x80), ErrDamaged, "units"},
		{"hidden more", set(dims+24, 4), ErrDamaged, "the file ends here"},
		{"hidden fewer", set(dims+24, 2), ErrDamaged, "bytes follow the end"},
		{"name longer", set(dims+28, 6), ErrDamaged, "the file ends here"},
		{"name bytes", set(name, 0xff), ErrDamaged, "not valid UTF-8"},
		{"layer ids", set(ids+4, 1), ErrDamaged, "not ascending"},
		{"centre", set(centre, nan...), ErrDamaged, "centre 0 is NaN"},
		{"scale", set(scale, 0, 0, 0, 0), ErrDamaged, "scale 0 is 0"},
		{"scale negative", set(scale, 0, 0, 0x80, 0xbf), ErrDamaged, "scale 0 is -1"},
		{"weight", set(scale+4*(router.FeatureColumns()+1), nan...), ErrDamaged, "layer 0: hidden 0 is NaN"},
		{"weight huge", set(scale+4*(router.FeatureColumns()+1), 0, 0, 0x80, 0x7e), ErrDamaged, "at most 1e+06"},
		{"checksum", func(b []byte) []byte { b[len(b)-1]++; return b }, ErrDamaged, "checksum is"},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }, ErrDamaged, "the file ends here"},
		{"tail", func(b []byte) []byte { return append(b, 0) }, ErrDamaged, "bytes follow the end"},
	}
	good := saved(t, drawn(t, savedDims, 4))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Load(bytes.NewReader(test.damage(bytes.Clone(good))))
			if !errors.Is(err, test.sentinel) || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "learned: ") {
				t.Errorf("got %v, want %v with %q", err, test.sentinel, test.want)
			}
		})
	}
}

// A flipped bit anywhere is always found.
func TestLoadEveryBit(t *testing.T) {
	good := saved(t, drawn(t, Dims{Shape: small, Embedding: 1, Hidden: 1}, 4))
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 1 << (i % 8)
		if _, err := Load(bytes.NewReader(b)); err == nil {
			t.Fatalf("byte %d changed: got no error", i)
		}
	}
}

func TestReadAndWriteErrors(t *testing.T) {
	broken := errors.New("the disk is gone")
	good := saved(t, drawn(t, savedDims, 4))
	for _, at := range []int{0, 20, 100} {
		if _, err := Load(&failing{good[:at], broken}); !errors.Is(err, broken) {
			t.Errorf("failed after %d bytes: got %v, want what the reader said", at, err)
		}
	}
	if err := drawn(t, savedDims, 4).Save(&failing{nil, broken}); !errors.Is(err, broken) {
		t.Errorf("write: got %v, want what the writer said", err)
	}
}

// failing reads some bytes and then fails, and writes none.
type failing struct {
	left []byte
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if len(f.left) == 0 {
		return 0, f.err
	}
	n := copy(p, f.left)
	f.left = f.left[n:]
	return n, nil
}

func (f *failing) Write([]byte) (int, error) { return 0, f.err }

// TestLoadTakesLittleMemory: a header that promises much does not get it.
func TestLoadTakesLittleMemory(t *testing.T) {
	b := saved(t, drawn(t, savedDims, 4))[:100]
	binary.LittleEndian.PutUint32(b[headBytes+8:], 64)
	binary.LittleEndian.PutUint32(b[headBytes+12:], 512)
	if got := testing.Benchmark(func(bench *testing.B) {
		bench.ReportAllocs()
		for bench.Loop() {
			if _, err := Load(bytes.NewReader(b)); !errors.Is(err, ErrDamaged) {
				bench.Fatal(err)
			}
		}
	}).AllocedBytesPerOp(); got > 16<<10 {
		t.Errorf("got %d bytes allocated for a file of 100, want a few KiB", got)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(saved(f, drawn(f, Dims{Shape: layout.Shape{Layers: 1, Experts: 2, TopK: 1}, Embedding: 1, Hidden: 1}, 4)))
	f.Add([]byte(magic + "\x02\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		forms := [][]byte{b}
		if len(b) >= tailBytes {
			forms = append(forms, reseal(bytes.Clone(b)))
		}
		for _, b := range forms {
			m, err := Load(bytes.NewReader(b))
			if err != nil {
				if !errors.Is(err, ErrNotModel) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrFeatures) && !errors.Is(err, ErrDamaged) {
					t.Fatalf("got an error of no kind: %v", err)
				}
				continue
			}
			if !bytes.Equal(saved(t, m), b) {
				t.Fatal("saved again: got other bytes")
			}
			s, dst := m.NewScratch(), make([]float32, m.dims.Shape.Experts)
			m.LogOdds(m.dims.Shape.Layers-1, View{Horizon: Near, Before: []int32{0}, Again: []int32{0}}, s, dst)
			for e, z := range dst {
				if z != z {
					t.Fatalf("expert %d: got %v, want a number", e, z)
				}
			}
		}
	})
}
