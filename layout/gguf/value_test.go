package gguf_test

import (
	"math"
	"slices"
	"testing"

	"outrider/layout/gguf"
)

// valueSet has a value of each kind.
var valueSet = []struct {
	key   string
	value any
	kind  gguf.Kind
	text  string
}{
	{"u8", uint8(200), gguf.KindUint8, "200"},
	{"i8", int8(-3), gguf.KindInt8, "-3"},
	{"u16", uint16(65535), gguf.KindUint16, "65535"},
	{"i16", int16(-32768), gguf.KindInt16, "-32768"},
	{"u32", uint32(math.MaxUint32), gguf.KindUint32, "4294967295"},
	{"i32", int32(-7), gguf.KindInt32, "-7"},
	{"u64", uint64(math.MaxUint64), gguf.KindUint64, "18446744073709551615"},
	{"i64", int64(math.MinInt64), gguf.KindInt64, "-9223372036854775808"},
	{"f32", float32(0.5), gguf.KindFloat32, "0.5"},
	{"f64", 1e300, gguf.KindFloat64, "1e+300"},
	{"bool", true, gguf.KindBool, "true"},
	{"string", "grün", gguf.KindString, "grün"},
	{"empty", "", gguf.KindString, ""},
	{"strings", []string{"a", "", "ccc"}, gguf.KindArray, "[3 string]"},
	{"nothing", []string{}, gguf.KindArray, "[0 string]"},
	{"ints", []int32{1, -1, 1}, gguf.KindArray, "[3 int32]"},
	{"bytes", []uint8{255, 0}, gguf.KindArray, "[2 uint8]"},
	{"floats", []float32{0.25, -1}, gguf.KindArray, "[2 float32]"},
	{"bools", []bool{true, false}, gguf.KindArray, "[2 bool]"},
	{"huge", []uint64{math.MaxUint64}, gguf.KindArray, "[1 uint64]"},
}

// checkValues looks for all of valueSet in a file.
func checkValues(t *testing.T, f *gguf.File) {
	t.Helper()
	for _, s := range valueSet {
		v, ok := f.Meta(s.key)
		if !ok || v.Kind() != s.kind || v.String() != s.text {
			t.Errorf("%s: got %v %v %q, want %v %q", s.key, ok, v.Kind(), v.String(), s.kind, s.text)
		}
	}
	strings, _ := f.Meta("strings")
	ints, _ := f.Meta("ints")
	floats, _ := f.Meta("floats")
	huge, _ := f.Meta("huge")
	if got, _ := strings.Strings(); !slices.Equal(got, []string{"a", "", "ccc"}) {
		t.Errorf("strings: got %q", got)
	}
	if got, _ := ints.Ints(); !slices.Equal(got, []int64{1, -1, 1}) {
		t.Errorf("ints: got %v", got)
	}
	if got, _ := floats.Floats(); !slices.Equal(got, []float64{0.25, -1}) {
		t.Errorf("floats: got %v", got)
	}
	if got, ok := huge.Ints(); ok {
		t.Errorf("huge: got %v, want that it is refused", got)
	}
}

func TestValues(t *testing.T) {
	w := &gguf.Writer{}
	var keys []string
	for _, s := range valueSet {
		w.Set(s.key, s.value)
		keys = append(keys, s.key)
	}
	f := open(t, oneFile(t, w), "m.gguf")
	checkValues(t, f)
	if got := f.Keys(); !slices.Equal(got, keys) {
		t.Errorf("keys: got %q, want %q", got, keys)
	}
	if _, ok := f.Meta("none"); ok {
		t.Error("a key that is not there: got ok, want not")
	}
}

// Each accessor takes the kinds it names and no other.
func TestAccessors(t *testing.T) {
	w := &gguf.Writer{}
	for k, v := range map[string]any{
		"u8": uint8(1), "i8": int8(-1), "i64": int64(5), "u64": uint64(math.MaxUint64), "f32": float32(1), "f64": 1.0,
		"bool": true, "string": "s", "strings": []string{"x", "y"}, "ints": []uint16{1, 2}, "floats": []float64{1, 2},
		"bools": []bool{true}, "huge": []uint64{math.MaxUint64}, "no chars": []uint8{},
	} {
		w.Set(k, v)
	}
	f := open(t, oneFile(t, w), "m.gguf")
	accessors := []struct {
		name string
		ok   func(gguf.Value) bool
		want []string
	}{
		{"Str", func(v gguf.Value) bool { s, ok := v.Str(); return ok && s == "s" }, []string{"string"}},
		{"Bool", func(v gguf.Value) bool { b, ok := v.Bool(); return ok && b }, []string{"bool"}},
		{"Int", func(v gguf.Value) bool { _, ok := v.Int(); return ok }, []string{"i64", "i8", "u8"}},
		{"Uint", func(v gguf.Value) bool { _, ok := v.Uint(); return ok }, []string{"i64", "u64", "u8"}},
		{"Float", func(v gguf.Value) bool { x, ok := v.Float(); return ok && x == 1 }, []string{"f32", "f64"}},
		{"Strings", func(v gguf.Value) bool {
			s, ok := v.Strings()
			return ok && slices.Equal(s, []string{"x", "y"})
		}, []string{"strings"}},
		{"Ints", func(v gguf.Value) bool {
			s, ok := v.Ints()
			return ok && (len(s) == 0 || slices.Equal(s, []int64{1, 2}))
		}, []string{"ints", "no chars"}},
		{"Floats", func(v gguf.Value) bool { s, ok := v.Floats(); return ok && slices.Equal(s, []float64{1, 2}) }, []string{"floats"}},
		{"Bools", func(v gguf.Value) bool { s, ok := v.Bools(); return ok && slices.Equal(s, []bool{true}) }, []string{"bools"}},
	}
	for _, a := range accessors {
		var got []string
		for _, key := range f.Keys() {
			if v, _ := f.Meta(key); a.ok(v) {
				got = append(got, key)
			}
		}
		if slices.Sort(got); !slices.Equal(got, a.want) {
			t.Errorf("%s: got values of %v, want of %v", a.name, got, a.want)
		}
		if a.ok(gguf.Value{}) {
			t.Errorf("%s of the zero value: got ok, want not", a.name)
		}
	}
}

func TestArrayElem(t *testing.T) {
	w := &gguf.Writer{}
	w.Set("a", []int16{1, 2, 3})
	w.Set("b", uint8(1))
	f := open(t, oneFile(t, w), "m.gguf")
	a, _ := f.Meta("a")
	b, _ := f.Meta("b")
	if a.Elem() != gguf.KindInt16 || a.Len() != 3 || b.Elem() != gguf.KindUint8 || b.Len() != 1 {
		t.Errorf("got %v x %d and %v x %d, want int16 x 3 and uint8 x 1", a.Elem(), a.Len(), b.Elem(), b.Len())
	}
}
