package safetensors_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"outrider/layout/safetensors"
)

func TestDamagedSets(t *testing.T) {
	plain := plainSet(t)
	index := func(text string) map[string][]byte {
		return with(plain, map[string][]byte{mainName: []byte(text)})
	}
	noIndex := func(changes map[string][]byte) map[string][]byte {
		return with(with(plain, map[string][]byte{mainName: nil}), changes)
	}
	parts := map[string][]byte{"w-TP-000.safetensors": file(t, "w", "v"), "w-TP-001.safetensors": file(t, "w", "v"), "w-TP-002.safetensors": file(t, "w", "v")}
	many := map[string][]byte{"m-00001-of-00099.safetensors": file(t, "a")}
	badIndex, missing, set := safetensors.ErrIndex, safetensors.ErrMissingShard, safetensors.ErrSet
	for _, c := range []struct {
		name, path string
		files      map[string][]byte
		is         error
		at         string // the path that the error names, below /m
		want       string
	}{
		{"index is empty", "/m", with(plain, map[string][]byte{mainName: {}}), badIndex, mainName, "ends too early"},
		{"index is no JSON", "/m", index(`{"weight_map"`), badIndex, mainName, "no valid JSON"},
		{"index is an array", "/m", index(`[]`), badIndex, mainName, "the index is [, want an object"},
		{"index is not UTF-8", "/m", index("{\"\xff\":1}"), badIndex, mainName, "not UTF-8"},
		{"index and more", "/m", index(`{"weight_map":{}}{}`), badIndex, mainName, "the index is followed by something"},
		{"index without a map", "/m", index(`{"metadata":{}}`), badIndex, mainName, "no weight_map"},
		{"two maps", "/m", index(`{"weight_map":{},"weight_map":{}}`), badIndex, mainName, `has "weight_map" twice`},
		{"map is a list", "/m", index(`{"weight_map":["a"]}`), badIndex, mainName, "is [, want an object"},
		{"file is a number", "/m", index(`{"weight_map":{"a":1}}`), badIndex, mainName, `"a" is 1, want a string`},
		{"name twice", "/m", index(`{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}`), badIndex, mainName, `has "a" twice`},
		{"member is no JSON", "/m", index(`{"x":tru,"weight_map":{}}`), badIndex, mainName, "no valid JSON"},
		{"path in the index", "/m", with(plain, map[string][]byte{mainName: indexText("a", "sub/x.safetensors")}), badIndex, mainName, `"a" lies in "sub/x.safetensors", want the plain name`},
		{"path upwards", "/m", with(plain, map[string][]byte{mainName: indexText("a", "../x.safetensors")}), badIndex, mainName, "want the plain name"},
		{"absolute path", "/m", with(plain, map[string][]byte{mainName: indexText("a", "/etc/x.safetensors")}), badIndex, mainName, "want the plain name"},
		{"path of Windows", "/m", with(plain, map[string][]byte{mainName: indexText("a", `..\x.safetensors`)}), badIndex, mainName, "want the plain name"},
		{"drive of Windows", "/m", with(plain, map[string][]byte{mainName: indexText("a", `c:x.safetensors`)}), badIndex, mainName, "want the plain name"},
		{"other form", "/m", with(plain, map[string][]byte{mainName: indexText("a", "pytorch_model.bin")}), badIndex, mainName, "want the plain name of a .safetensors file"},
		{"config given", "/m/config.json", plain, badIndex, "config.json", "no weight_map"},
		{"a file of the index missing", "/m", with(plain, map[string][]byte{two: nil}), missing, mainName, "1 of its 2 files are not beside it: " + two + "; get them"},
		{"tensor in the index only", "/m", with(plain, map[string][]byte{mainName: indexText("a", one, "b", one, "c", two, "d", two, "e", one)}), badIndex, mainName, `2 of 5 tensors that it names are in none of the files: "d", "e"; get`},
		{"tensor in a file only", "/m", with(plain, map[string][]byte{mainName: indexText("a", one, "c", two)}), badIndex, mainName, `lacks 1 tensors that are in the files: "b"`},
		{"tensor in another file", "/m", with(plain, map[string][]byte{mainName: indexText("a", one, "b", two, "c", two)}), badIndex, mainName, `1 tensors lie in another file than it says: "b"`},
		{"shards of another download", "/m", with(plain, map[string][]byte{"model-00001-of-00003.safetensors": file(t, "z")}), badIndex, mainName, "1 shards of the same name lie beside it that it does not name: model-00001-of-00003.safetensors"},
		{"name in two shards", "/m", with(plain, map[string][]byte{two: file(t, "c", "a")}), set, two, `tensor "a" is also in /m/` + one},
		{"a shard is cut", "/m", with(plain, map[string][]byte{two: plain[two][:len(plain[two])-1]}), safetensors.ErrTruncated, two, "1 bytes are missing"},
		{"a shard of no bytes", "/m", with(plain, map[string][]byte{two: {}}), safetensors.ErrNotSafetensors, two, "0 bytes"},
		{"several indexes", "/m", map[string][]byte{"x.safetensors.index.json": nil, "y.safetensors.index.json": nil}, set, "", "2 indexes: x.safetensors.index.json, y.safetensors.index.json"},

		{"middle shard missing", "/m", map[string][]byte{"m-00001-of-00003.safetensors": file(t, "a"), "m-00003-of-00003.safetensors": file(t, "c")}, missing, "m-00003-of-00003.safetensors", "1 of 3 shards are not beside it: m-00002-of-00003.safetensors; get"},
		{"last shard missing, one given", "/m/" + one, noIndex(map[string][]byte{two: nil}), missing, one, "not beside it: " + two},
		{"many missing", "/m", many, missing, "m-00001-of-00099.safetensors", "98 of 99 shards are not beside it: m-00002-of-00099.safetensors, m-00003"},
		{"hidden by another file", "/m", noIndex(map[string][]byte{two: nil, "mtp.safetensors": file(t, "m")}), missing, one, "1 of 2 shards"},
		{"shard beyond the last", "/m", noIndex(map[string][]byte{"model-00004-of-00002.safetensors": file(t, "d")}), set, "model-00004-of-00002.safetensors", "model-00004-of-00002.safetensors is beyond the last of 2 shards"},
		{"two sets", "/m", noIndex(map[string][]byte{"model-00001-of-00003.safetensors": file(t, "d"), "x-00001-of-00001.safetensors": file(t, "e")}), set, "",
			"shards of 3 sets and no index: model-*-of-00002.safetensors, model-*-of-00003.safetensors, x-*-of-00001.safetensors"},
		{"weights twice", "/m", noIndex(map[string][]byte{"model.safetensors": file(t, "a", "b", "c")}), set, one, `tensor "a" is also in /m/model.safetensors`},
		{"empty folder", "/m", nil, set, "", "no .safetensors file of a model"},
		{"adapter alone", "/m", map[string][]byte{"adapter_model.safetensors": file(t, "a")}, set, "", "left out, as adapters to a model: adapter_model.safetensors"},
		{"in a folder below", "/m", map[string][]byte{"original/x.safetensors": file(t, "a"), "docs/x.txt": nil}, set, "", "there are some in original: give that path"},

		{"a part's file missing", "/m", with(parts, map[string][]byte{"w-TP-001.safetensors": nil}), missing, "", "make 3 parts, but there is none of part 1"},
		{"a part missing", "/m", with(parts, map[string][]byte{"w-TP-001.safetensors": file(t, "w")}), missing, "", `1 tensors are in some, but not in all of the 3 parts: "v"`},
		{"a part twice", "/m", with(parts, map[string][]byte{"x-TP-001.safetensors": file(t, "w")}), set, "x-TP-001.safetensors", `tensor "w" is also in`},
		{"common and in parts", "/m", with(parts, map[string][]byte{"a-TP-common.safetensors": file(t, "w")}), set, "w-TP-000.safetensors", `tensor "w" is also in /m/a-TP-common.safetensors`},
		{"in parts and common", "/m", with(parts, map[string][]byte{"x-TP-common.safetensors": file(t, "w")}), set, "x-TP-common.safetensors", `tensor "w" is also in`},
		{"in a part and unmarked", "/m", with(parts, map[string][]byte{"x.safetensors": file(t, "w")}), set, "x.safetensors", `tensor "w" is also in`},
	} {
		fsys := folder(t, c.files)
		_, err := safetensors.OpenSet(fsys, c.path)
		var fe *safetensors.FormatError
		if !errors.Is(err, c.is) || !errors.As(err, &fe) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a FormatError with %v that says %q", c.name, err, c.is, c.want)
			continue
		}
		if at := strings.TrimSuffix("/m/"+c.at, "/"); fe.Path != at {
			t.Errorf("%s: got an error of %s, want one of %s", c.name, fe.Path, at)
		}
	}
}

// A message names some of what is missing, however much that is.
func TestLongListsAreCut(t *testing.T) {
	var pairs []string
	for i := range 5000 {
		pairs = append(pairs, fmt.Sprintf("model.layers.%04d.weight", i), one)
	}
	files := with(plainSet(t), map[string][]byte{mainName: indexText(append(pairs, "a", one, "b", one, "c", two)...)})
	_, err := safetensors.OpenSet(folder(t, files), "/m")
	if err == nil || len(err.Error()) > 1500 || !strings.Contains(err.Error(), `5000 of 5003 tensors that it names are in none of the files: "model.layers.0000.weight", `) ||
		!strings.Contains(err.Error(), `"model.layers.0019.weight" and 4980 more; get`) {
		t.Errorf("got %v", err)
	}
}
