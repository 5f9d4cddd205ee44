package gguf_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// folder is a file system with these files in "dir".
func folder(t testing.TB, files map[string][]byte) *memfs.FS {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	if err := fsys.Mkdir("dir"); err != nil {
		t.Fatal(err)
	}
	for name, data := range files {
		f, err := fsys.Create(filepath.Join("dir", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fsys
}

// ofKind is a file with one tensor that says this of itself.
func ofKind(t testing.TB, key, value string) []byte {
	t.Helper()
	w := &gguf.Writer{}
	if key != "" {
		w.Set(key, value)
	}
	add(w, "t", gguf.I8, 64)
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// threeShards holds six tensors in three files; the first has none.
func threeShards(t testing.TB, prefix string) map[string][]byte {
	t.Helper()
	w := &gguf.Writer{}
	w.Set("general.architecture", prefix)
	for i := range 6 {
		add(w, fmt.Sprintf("t%d", i), gguf.I8, 64)
	}
	return split(t, w, prefix, 0, 4, -1)
}

func without(files map[string][]byte, name string) map[string][]byte {
	files = maps.Clone(files)
	delete(files, name)
	return files
}

func with(files map[string][]byte, name string, data []byte) map[string][]byte {
	files = maps.Clone(files)
	files[name] = data
	return files
}

// What lies beside a model and says that it is something else is not taken for it.
func TestOpenFolder(t *testing.T) {
	model, shards := ofKind(t, "general.type", "model"), threeShards(t, "m")
	vocabulary, err := (&gguf.Writer{}).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	beside := map[string][]byte{
		"a-mmproj.gguf": ofKind(t, "general.type", "mmproj"), "b-imatrix.gguf": ofKind(t, "general.type", "imatrix"),
		"c-old-mmproj.gguf": ofKind(t, "general.architecture", "clip"), "d-vector.gguf": ofKind(t, "general.architecture", "controlvector"),
		"vocab.gguf": vocabulary, ".m.gguf": []byte("a note"), "README.md": []byte("# GGUF"), "m.gguf.part": model[:20],
	}
	for _, c := range []struct {
		name   string
		files  map[string][]byte
		shards []string
	}{
		{"one file", map[string][]byte{"m.gguf": model}, []string{"m.gguf"}},
		{"one file, capitals", map[string][]byte{"M.GGUF": model}, []string{"M.GGUF"}},
		{"says nothing of itself", map[string][]byte{"m.gguf": ofKind(t, "", "")}, []string{"m.gguf"}},
		{"one file among others", with(beside, "m.gguf", model), []string{"m.gguf"}},
		{"a split within the name", with(beside, "m-00001-of-00002-q4.gguf", model), []string{"m-00001-of-00002-q4.gguf"}},
		{"a shard's name only", with(beside, "m-00001-of-00009.gguf", model), []string{"m-00001-of-00009.gguf"}},
		{"a set", shards, []string{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}},
		{"a set among others", with(shards, "mmproj.gguf", beside["a-mmproj.gguf"]), []string{"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := open(t, folder(t, c.files), "dir")
			for i, s := range f.Shards() {
				if i >= len(c.shards) || s.Path != filepath.Join("dir", c.shards[i]) {
					t.Fatalf("got shard %d %s, want %v", i, s.Path, c.shards)
				}
			}
			if len(f.Shards()) != len(c.shards) || len(f.Tensors()) == 0 {
				t.Errorf("got %d shards and %d tensors, want %d and some", len(f.Shards()), len(f.Tensors()), len(c.shards))
			}
		})
	}
}

func TestOpenFolderErrors(t *testing.T) {
	model, shards := ofKind(t, "general.type", "model"), threeShards(t, "m")
	first, middle, last := "m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"
	two := maps.Clone(shards)
	maps.Copy(two, threeShards(t, "other"))
	many := map[string][]byte{}
	for i := range 30 {
		many[fmt.Sprintf("m%02d.gguf", i)] = model
	}
	for _, c := range []struct {
		name  string
		files map[string][]byte
		is    error
		want  []string
	}{
		{"empty", nil, gguf.ErrNoModel, []string{"no file in it is named *.gguf", "folders in it are not searched"}},
		{"other files", map[string][]byte{"m.safetensors": model, "m.gguf.part": model}, gguf.ErrNoModel, []string{"no file in it is named *.gguf"}},
		{"only a projector", map[string][]byte{"p.gguf": ofKind(t, "general.type", "mmproj")}, gguf.ErrNoModel, []string{`p.gguf (general.type "mmproj")`}},
		{"only a vocabulary", map[string][]byte{"v.gguf": func() []byte { b, _ := (&gguf.Writer{}).Bytes(); return b }()}, gguf.ErrNoModel, []string{"v.gguf (no tensors)"}},
		{"two models", map[string][]byte{"a.gguf": model, "b.gguf": model}, gguf.ErrSeveral, []string{"a.gguf, b.gguf; name one of them"}},
		{"thirty models", many, gguf.ErrSeveral, []string{"m00.gguf, ", "m19.gguf and 10 more"}},
		{"model and set", with(shards, "m.gguf", model), gguf.ErrSeveral, []string{"m-*-of-00003.gguf (3 files)", "m.gguf"}},
		{"two sets", two, gguf.ErrSeveral, []string{"m-*-of-00003.gguf (3 files), other-*-of-00003.gguf (3 files)"}},
		{"two splits of a model", with(shards, "m-00001-of-00009.gguf", shards[first]), gguf.ErrSeveral, []string{"m-*-of-00003.gguf (3 files), m-*-of-00009.gguf (1 files)"}},
		{"two that only look like shards", map[string][]byte{"m-00001-of-00002.gguf": model, "m-00002-of-00002.gguf": model}, gguf.ErrSeveral, []string{"m-00001-of-00002.gguf, m-00002-of-00002.gguf"}},
		{"model and a damaged file", map[string][]byte{"a.gguf": model, "b.gguf": []byte("<html>")}, gguf.ErrSeveral, []string{"a.gguf, b.gguf (cannot be read)"}},
		{"a damaged file", map[string][]byte{"b.gguf": []byte("<html>")}, gguf.ErrNotGGUF, []string{"b.gguf", `"<htm"`}},
		{"an empty file", map[string][]byte{"b.gguf": nil}, gguf.ErrTruncated, []string{"b.gguf", "it is empty"}},
		{"truncated model", map[string][]byte{"b.gguf": model[:len(model)-33]}, gguf.ErrTruncated, []string{"b.gguf", "get the file again"}},
		{"first missing", without(shards, first), gguf.ErrMissingShard, []string{"1 of 3 shards", first + ";"}},
		{"middle missing", without(shards, middle), gguf.ErrMissingShard, []string{"1 of 3 shards", middle + ";"}},
		{"last missing", without(shards, last), gguf.ErrMissingShard, []string{"1 of 3 shards", last + ";"}},
		{"first empty", with(shards, first, nil), gguf.ErrTruncated, []string{first, "it is empty"}},
		{"middle empty", with(shards, middle, nil), gguf.ErrTruncated, []string{middle, "it is empty"}},
		{"all empty", map[string][]byte{first: nil, middle: nil, last: nil}, gguf.ErrTruncated, []string{first, "it is empty"}},
		{"last truncated", with(shards, last, shards[last][:len(shards[last])-40]), gguf.ErrTruncated, []string{last, `tensor "t5" ends`, "get the file again"}},
		{"one too many", with(shards, "m-00004-of-00003.gguf", shards[last]), gguf.ErrSplit, []string{"the model has 3 shards, but beside it lies m-00004-of-00003.gguf", "move it away"}},
		{"number zero", with(shards, "m-00000-of-00003.gguf", shards[first]), gguf.ErrSplit, []string{"says shard 1 of 3", "give it back its name"}},
		{"count of a string", map[string][]byte{"m.gguf": withKey("split.count", "three")(nil)}, gguf.ErrSplit, []string{"split.count is three"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := gguf.Open(folder(t, c.files), "dir")
			var fe *gguf.FormatError
			if !errors.Is(err, c.is) || !errors.As(err, &fe) {
				t.Fatalf("got %v, want a FormatError with %v", err, c.is)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

// Opened by a shard, a set is refused with a shard too many, but not for models of
// other names beside it.
func TestShardBesideOthers(t *testing.T) {
	shards := threeShards(t, "m")
	fsys := folder(t, with(shards, "m-00005-of-00003.gguf", nil))
	first := filepath.Join("dir", "m-00001-of-00003.gguf")
	if _, err := gguf.Open(fsys, first); !errors.Is(err, gguf.ErrSplit) || !strings.Contains(err.Error(), "m-00005-of-00003.gguf") {
		t.Errorf("a shard too many: got %v, want %v with its name", err, gguf.ErrSplit)
	}
	others := maps.Clone(shards)
	for _, name := range []string{"mm-00004-of-00003.gguf", "m-00007-of-00009.gguf", "m.gguf", "m-00004-of-00003.gguf.part"} {
		others[name] = nil
	}
	if f := open(t, folder(t, others), first); len(f.Shards()) != 3 {
		t.Errorf("other models beside it: got %d shards, want 3", len(f.Shards()))
	}
}

// brokenFS cannot list folders or open files.
type brokenFS struct {
	*memfs.FS
	list error
}

func (f brokenFS) ReadDir(string) ([]fs.DirEntry, error) { return nil, f.list }

func TestOpenFolderThatCannotBeListed(t *testing.T) {
	broken := errors.New("broken")
	fsys := brokenFS{folder(t, threeShards(t, "m")), broken}
	if _, err := gguf.Open(fsys, "dir"); !errors.Is(err, broken) || !strings.Contains(err.Error(), "list dir") {
		t.Errorf("got %v, want %v and the folder", err, broken)
	}
	if f := open(t, fsys, filepath.Join("dir", "m-00002-of-00003.gguf")); len(f.Tensors()) != 6 {
		t.Errorf("opened by a shard: got %d tensors, want 6", len(f.Tensors()))
	}
}
