package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"outrider/trace/importer/internal/torchfile/torchwrite"
)

func TestDamagedFiles(t *testing.T) {
	pkl := func(code string) []byte { return archive(t, []byte("\x80\x02"+code)) }
	view := func(change func(a *tensor)) []byte {
		a := int32s([]int{2, 3}, 1, 2, 3, 4, 5, 6)
		change(a)
		return save(t, a)
	}
	code, storages, err := torchwrite.Pickle(int32s([]int{2}, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	deflated, err := torchwrite.Zip(zip.Deflate, torchwrite.Entry{Name: "a/data.pkl", Data: code}, torchwrite.Entry{Name: "a/data/0", Data: storages[0]})
	if err != nil {
		t.Fatal(err)
	}
	flipped := view(func(*tensor) {})
	flipped[bytes.Index(flipped, []byte{1, 0, 0, 0, 2, 0, 0, 0, 3})] ^= 4

	const persid = "(X\x07\x00\x00\x00storagectorch\nIntStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
	for _, c := range []struct {
		name string
		data []byte
		is   error
		want string
	}{
		{"empty", nil, ErrNotTorch, "it is no zip file"},
		{"text", []byte("hello"), ErrNotTorch, "it is no zip file"},
		{"old file", append(append([]byte{}, legacyMagic...), "\x80\x02M\xe9\x03."...), ErrLegacy, "save it again"},
		{"zip of something else", zipped(t, "a.npy", ""), ErrNotTorch, "no <name>/data.pkl among its 1 entries"},
		{"pickle not in a folder", zipped(t, "data.pkl", "N."), ErrNotTorch, "no <name>/data.pkl"},
		{"two pickles", zipped(t, "a/data.pkl", "N.", "b/data.pkl", "N."), ErrDamaged, "two pickles"},
		{"byte order", zipped(t, "a/data.pkl", "N.", "a/byteorder", "mixed"), ErrDamaged, `byteorder is "mixed"`},
		{"byte order too long", zipped(t, "a/data.pkl", "N.", "a/byteorder", string(make([]byte, 99))), ErrDamaged, "99 bytes, the limit is 16"},
		{"cut zip", flipped[:len(flipped)-30], ErrNotTorch, "it is no zip file"},
		{"checksum", flipped, ErrDamaged, "checksum"},
		{"compressed storage", deflated, ErrDamaged, "is compressed"},

		{"os.system", pkl("cposix\nsystem\n(X\x02\x00\x00\x00lst R."), ErrRefused, `"posix.system"`},
		{"builtins eval", pkl("cbuiltins\neval\n."), ErrRefused, `"builtins.eval"`},
		{"object storage", pkl("ctorch.storage\nUntypedStorage\n."), ErrRefused, `"torch.storage.UntypedStorage"`},
		{"parameter", pkl("ctorch._utils\n_rebuild_parameter\n."), ErrRefused, "_rebuild_parameter"},
		{"BUILD", pkl("}}b."), ErrRefused, "0x62 (BUILD)"},
		{"INST", pkl("(iposix\nsystem\n."), ErrRefused, "INST"},
		{"OBJ", pkl("(No."), ErrRefused, "OBJ"},
		{"NEWOBJ", pkl("}N\x81."), ErrRefused, "NEWOBJ"},
		{"STACK_GLOBAL", pkl("NN\x93."), ErrRefused, "STACK_GLOBAL"},
		{"EXT1", pkl("\x82\x01."), ErrRefused, "EXT1"},
		{"protocol 4", pkl("\x95\x00."), ErrRefused, "pickle_protocol"},
		{"text protocol", pkl("I1\n."), ErrRefused, `0x49`},
		{"protocol 9", zipped(t, "a/data.pkl", "\x80\x09N."), ErrDamaged, "protocol 9"},
		{"big int", pkl("\x8a\x09123456789."), ErrRefused, "an int of 9 bytes"},
		{"call of a storage", pkl("ctorch\nIntStorage\n)R."), ErrRefused, "calls torch.IntStorage"},
		{"call of an int", pkl("K\x01)R."), ErrRefused, "calls an int"},
		{"call with a list", pkl("ccollections\nOrderedDict\n]R."), ErrDamaged, "a call with a list"},
		{"OrderedDict of pairs", pkl("ccollections\nOrderedDict\n]\x85R."), ErrRefused, "called with 1 arguments"},
		{"append to a dict", pkl("}Na."), ErrRefused, "appends to a dict"},
		{"item of a list", pkl("]NNs."), ErrRefused, "items of a list"},
		{"odd items", pkl("}(Nu."), ErrDamaged, "a key without a value"},

		{"no end", pkl("N"), ErrDamaged, "ends inside an instruction"},
		{"nothing", pkl("."), ErrDamaged, "ends with 0 values"},
		{"two values", pkl("NN."), ErrDamaged, "ends with 2 values"},
		{"open mark", pkl("(N."), ErrDamaged, "ends with 2 values"},
		{"a mark", pkl("(."), ErrDamaged, "ends with 1 values"},
		{"no mark", pkl("t."), ErrDamaged, "needs a mark"},
		{"mark in the way", pkl("N(\x85."), ErrDamaged, "needs 1 values, there are 0"},
		{"list below a mark", pkl("](Na(e."), ErrDamaged, "a mark"},
		{"too few", pkl("N\x87."), ErrDamaged, "needs 3 values, there are 1"},
		{"put nothing", pkl("q\x00."), ErrDamaged, "needs a value"},
		{"put a mark", pkl("(q\x00."), ErrDamaged, "there is a mark"},
		{"get nothing", pkl("h\x07."), ErrDamaged, "names value 7"},
		{"cut int", pkl("J\x00."), ErrDamaged, "ends inside"},
		{"cut float", pkl("G12."), ErrDamaged, "ends inside"},
		{"long text", pkl("X\xff\xff\xff\xff."), ErrDamaged, "a text of 4294967295 bytes"},
		{"cut text", pkl("X\x05\x00\x00\x00ab."), ErrDamaged, "ends inside"},
		{"text no UTF-8", pkl("X\x01\x00\x00\x00\xff."), ErrDamaged, "not UTF-8"},
		{"endless name", pkl("c" + strings.Repeat("x", 500)), ErrDamaged, "a name without an end"},

		{"persistent id", pkl("K\x01Q."), ErrRefused, "no storage"},
		{"storage of texts", pkl("(X\x07\x00\x00\x00storageNNNNtQ."), ErrDamaged, "a storage of (None, None, None)"},
		{"storage with a negative count", pkl(persid + "J\xff\xff\xff\xfftQ."), ErrDamaged, "a storage of"},
		{"tensor of nothing", pkl("ctorch._utils\n_rebuild_tensor_v2\n)R."), ErrDamaged, "a tensor of 0 parts"},
		{"tensor without storage", pkl("ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))tR."), ErrDamaged, "a tensor of (None, an int)"},
		{"shape no tuple", pkl("ctorch._utils\n_rebuild_tensor_v2\n(" + persid + "K\x01tQK\x00N)tR."), ErrDamaged, "shape is None"},
		{"stride of texts", pkl("ctorch._utils\n_rebuild_tensor_v2\n(" + persid + "K\x01tQK\x00)N\x85tR."), ErrDamaged, "stride holds None"},
		{"9 dimensions", view(func(a *tensor) { a.Shape = make([]int, 9) }), ErrDamaged, "a tuple of at most 8"},
		{"negative shape", view(func(a *tensor) { a.Shape = []int{-1, 3} }), ErrDamaged, "shape holds an int, want whole numbers"},
		{"stride too few", view(func(a *tensor) { a.Stride = []int{1} }), ErrDamaged, "does not lie in its storage"},
		{"shape beyond the storage", view(func(a *tensor) { a.Shape = []int{3, 3} }), ErrDamaged, "does not lie in its storage of 6"},
		{"offset beyond the storage", view(func(a *tensor) { a.Offset = 1 }), ErrDamaged, "does not lie"},
		{"negative offset", view(func(a *tensor) { a.Offset = -1 }), ErrDamaged, "does not lie"},
		{"shape overflows", view(func(a *tensor) { a.Shape, a.Stride = []int{math.MaxInt, math.MaxInt}, []int{math.MaxInt, 1} }), ErrDamaged, "does not lie"},
		{"one number repeated", view(func(a *tensor) { a.Shape, a.Stride = []int{1 << 20, 1 << 20}, []int{0, 0} }), ErrDamaged, "more than 67108864"},
		{"storage too short", view(func(a *tensor) { a.Data = a.Data[:20] }), ErrDamaged, "has 20 bytes, want 6 numbers of int32"},
		{"storage too large", view(func(a *tensor) { a.Numel = 1 << 40 }), ErrDamaged, "want 1099511627776 numbers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := readAll(c.data)
			var e *Error
			if !errors.Is(err, c.is) || !errors.As(err, &e) {
				t.Fatalf("got %v, want an Error with %v", err, c.is)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want it to contain %q", err, c.want)
			}
		})
	}
}

// readAll reads a file and all tensors that its root is or lists.
func readAll(b []byte) error {
	f, err := open(b)
	if err != nil {
		return err
	}
	values := []any{f.Root}
	switch v := f.Root.(type) {
	case *List:
		values = v.Items
	case *Dict:
		values = v.Values
	}
	for _, v := range values {
		if t, ok := v.(*Tensor); ok {
			if _, err := f.Floats(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestMissingStorage(t *testing.T) {
	code, _, err := torchwrite.Pickle(int32s([]int{1}, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := readAll(archive(t, code)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), `no entry "archive/data/0"`) {
		t.Errorf("got %v, want the missing entry's name", err)
	}
}

// Depth is only data: nothing recurses over it.
func TestDeepNesting(t *testing.T) {
	deep := bytes.Repeat([]byte("]"), 1<<17)
	deep = append(deep, bytes.Repeat([]byte("a"), 1<<17-1)...)
	if err := readAll(archive(t, append(deep, '.'))); err != nil {
		t.Errorf("got %v, want a deep list", err)
	}
}

func TestTooManyValues(t *testing.T) {
	for code, want := range map[string]string{"](NNNNe.": "more than 4 values", "Nq\x00q\x01q\x02r\x03\x00\x00\x00r\x04\x00\x00\x00.": "keeps more than 4 values"} {
		m := &machine{code: []byte(code), limit: 4}
		if _, err := m.run(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Many small views of one large storage must not read it without end.
func TestManyViewsOfOneStorage(t *testing.T) {
	view := &tensor{Class: "ByteStorage", Shape: []int{1}, Data: make([]byte, 1<<20), Numel: 1 << 20}
	views := make([]any, 1000)
	for i := range views {
		views[i] = view
	}
	if err := readAll(save(t, views)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "more than 16 times the file's") {
		t.Errorf("got %v, want a limit on reads", err)
	}
}
