package torchfile

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace/importer/internal/torchfile/torchwrite"
)

// plain turns values into ones that compare.
func plain(v any) any {
	switch v := v.(type) {
	case *List:
		out := []any{}
		for _, i := range v.Items {
			out = append(out, plain(i))
		}
		return out
	case Tuple:
		out := tuple{}
		for _, i := range v {
			out = append(out, plain(i))
		}
		return out
	case *Dict:
		out := dict{}
		for i := range v.Keys {
			out = append(out, pair{plain(v.Keys[i]), plain(v.Values[i])})
		}
		return out
	}
	return v
}

func TestValues(t *testing.T) {
	f, err := open(save(t, dict{
		{"none", nil}, {"yes", true}, {"no", false}, {"text", "grün"}, {"half", 0.5},
		{"ints", []any{0, 255, 256, 65535, 65536, -1, math.MinInt32, int64(1) << 40, int64(math.MinInt64)}},
		{"tuples", tuple{tuple{}, tuple{1}, tuple{1, 2}, tuple{1, 2, 3}, tuple{1, 2, 3, 4}}},
		{7, []any{}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := dict{
		{"none", nil}, {"yes", true}, {"no", false}, {"text", "grün"}, {"half", 0.5},
		{"ints", []any{int64(0), int64(255), int64(256), int64(65535), int64(65536), int64(-1), int64(math.MinInt32), int64(1) << 40, int64(math.MinInt64)}},
		{"tuples", tuple{tuple{}, tuple{int64(1)}, tuple{int64(1), int64(2)}, tuple{int64(1), int64(2), int64(3)}, tuple{int64(1), int64(2), int64(3), int64(4)}}},
		{int64(7), []any{}},
	}
	if d := cmp.Diff(want, plain(f.Root)); d != "" {
		t.Errorf("values differ (-want +got):\n%s", d)
	}
}

// A pickle that names one list twice gives one list, with all it gained.
func TestSharedList(t *testing.T) {
	code := []byte("\x80\x02]q\x00(]q\x01K\x07ah\x01e.") // a = []; a.append(7); [a, a]
	f, err := open(archive(t, code))
	if err != nil {
		t.Fatal(err)
	}
	items := f.Root.(*List).Items
	if len(items) != 2 || items[0] != items[1] || len(items[1].(*List).Items) != 1 {
		t.Errorf("got %v, want one list of one value twice", plain(f.Root))
	}
}

// What Python 3.11's pickle module makes of {"a": [1, -2, 3000000000, 0.25], "b": (True, None)},
// protocol 2.
func TestPythonsOwnPickle(t *testing.T) {
	code := []byte("\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\x8a\x05\x00^\xd0\xb2\x00G?\xd0\x00\x00\x00\x00\x00\x00eX\x01\x00\x00\x00bq\x03\x88N\x86q\x04u.")
	f, err := open(archive(t, code))
	if err != nil {
		t.Fatal(err)
	}
	want := dict{{"a", []any{int64(1), int64(-2), int64(3000000000), 0.25}}, {"b", tuple{true, nil}}}
	if d := cmp.Diff(want, plain(f.Root)); d != "" {
		t.Errorf("values differ (-want +got):\n%s", d)
	}
}

func TestTensors(t *testing.T) {
	le := binary.LittleEndian
	half := []byte{0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00} // 1, -2, 2^-24
	double := le.AppendUint64(nil, math.Float64bits(-0.1))
	bf16 := []byte{0x80, 0x3f, 0x20, 0xc1} // 1, -10
	f, err := open(save(t, []any{
		int32s([]int{2, 3}, 1, -2, 3, 4, 5, 1<<31-1),
		&tensor{Class: "IntStorage", Shape: []int{3, 2}, Stride: []int{1, 3}, Data: int32s(nil, 1, 2, 3, 4, 5, 6).Data, Numel: 6},   // transposed
		&tensor{Class: "IntStorage", Shape: []int{2}, Stride: []int{2}, Offset: 1, Data: int32s(nil, 1, 2, 3, 4, 5).Data, Numel: 5}, // a view
		&tensor{Class: "LongStorage", Shape: []int{}, Data: le.AppendUint64(nil, 1<<40), Numel: 1},                                  // a single number
		&tensor{Class: "IntStorage", Shape: []int{0, 8}, Numel: 0},                                                                  // nothing
		&tensor{Class: "HalfStorage", Shape: []int{3}, Data: half, Numel: 3}, &tensor{Class: "BFloat16Storage", Shape: []int{2}, Data: bf16, Numel: 2},
		&tensor{Class: "DoubleStorage", Shape: []int{1}, Data: double, Numel: 1}, &tensor{Class: "CharStorage", Shape: []int{2}, Data: []byte{0xff, 5}, Numel: 2},
		&tensor{Class: "ShortStorage", Shape: []int{1}, Data: []byte{0xfe, 0xff}, Numel: 1},
	}))
	if err != nil {
		t.Fatal(err)
	}
	items := f.Root.(*List).Items
	for i, want := range [][]int64{{1, -2, 3, 4, 5, 1<<31 - 1}, {1, 4, 2, 5, 3, 6}, {2, 4}, {1 << 40}, nil} {
		got, err := f.Ints(items[i].(*Tensor))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("tensor %d differs (-want +got):\n%s", i, d)
		}
	}
	for i, want := range map[int][]float64{0: {1, -2, 3, 4, 5, 1<<31 - 1}, 5: {1, -2, math.Ldexp(1, -24)}, 6: {1, -10}, 7: {-0.1}, 8: {-1, 5}, 9: {-2}} {
		got, err := f.Floats(items[i].(*Tensor))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("tensor %d differs (-want +got):\n%s", i, d)
		}
	}
	if _, err := f.Ints(items[5].(*Tensor)); err == nil {
		t.Error("a tensor of floats reads as integers, want an error")
	}
}

func TestBigEndian(t *testing.T) {
	code, storages, err := torchwrite.Pickle(&tensor{Class: "ShortStorage", Shape: []int{2}, Data: []byte{1, 2, 0xff, 0xff}, Numel: 2})
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(zipped(t, "x/data.pkl", string(code), "x/byteorder", "big", "x/data/0", string(storages[0])))
	if err != nil {
		t.Fatal(err)
	}
	got, err := f.Ints(f.Root.(*Tensor))
	if d := cmp.Diff([]int64{0x0102, -1}, got); d != "" || err != nil {
		t.Errorf("%v, differs (-want +got):\n%s", err, d)
	}
}

// What Python 3.11's pickler makes of {"x": a tensor}, with classes that reduce
// as PyTorch's do.
func TestPythonsOwnTensor(t *testing.T) {
	code := []byte("\x80\x02}q\x00X\x01\x00\x00\x00xq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03ctorch\nIntStorage\nq\x04X\x01\x00\x00\x000q\x05X\x06\x00\x00\x00cuda:0q\x06K\x06tq\x07QK\x00K\x02K\x03\x86q\x08K\x03K\x01\x86q\t\x89ccollections\nOrderedDict\nq\n)Rq\x0btq\x0cRq\rs.")
	f, err := open(archive(t, code, int32s(nil, 1, 2, 3, 4, 5, 6).Data))
	if err != nil {
		t.Fatal(err)
	}
	x, _ := f.Root.(*Dict).Get("x")
	tensor := x.(*Tensor)
	got, err := f.Ints(tensor)
	if d := cmp.Diff([]int64{1, 2, 3, 4, 5, 6}, got); d != "" || err != nil {
		t.Errorf("%v, differs (-want +got):\n%s", err, d)
	}
	if d := cmp.Diff([]int64{2, 3}, tensor.Shape); d != "" {
		t.Errorf("shape differs (-want +got):\n%s", d)
	}
}
