package importer

import (
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/testfiles"
	"outrider/layout"
	"outrider/trace"
)

// ours writes a small trace of this project's form.
func ours(t *testing.T, name string, tokens int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	w, err := trace.Create(path, trace.Header{
		Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2}, IDs: trace.IDsLogical, Sequences: trace.Yes,
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tokens {
		if err := w.Append(&trace.Activation{Pos: int64(i), Token: -1, Experts: []int32{0, 1, 2, 7}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func count(t *testing.T, i *Import) (n int) {
	t.Helper()
	var a trace.Activation
	for {
		if err := i.Next(&a); errors.Is(err, io.EOF) {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

func TestOpenFindsOurForms(t *testing.T) {
	for name, form := range map[string]string{"a.trace": "outrider", "a.trace.zst": "outrider", "a.jsonl": "jsonl", "a.jsonl.gz": "jsonl"} {
		in, err := Open([]string{ours(t, name, 5)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if in.Form.Name != form || count(t, in) != 5 || in.NoOrder() != nil || in.Header().IDs != trace.IDsLogical {
			t.Errorf("%s: got form %s, want %s with its 5 tokens and facts", name, in.Form.Name, form)
		}
		if err := errors.Join(in.Close(), in.Close()); err != nil {
			t.Errorf("%s: Close twice: %v", name, err)
		}
	}
}

func TestHistogramsHaveNoOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h.json.gz")
	h := &trace.Histogram{Model: "m", Layers: 1, Experts: 2, Tables: []trace.Counts{{Counts: [][]float64{{1, 2}}}}}
	if err := h.Create(path); err != nil {
		t.Fatal(err)
	}
	in, err := Open([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	_, readErr := in.ReadAll(0)
	for name, err := range map[string]error{"NoOrder": in.NoOrder(), "Next": in.Next(&trace.Activation{}), "ReadAll": readErr} {
		if !errors.Is(err, ErrHistogram) || !strings.Contains(err.Error(), "h.json.gz") || !strings.Contains(err.Error(), "record a trace") {
			t.Errorf("%s: got %v, want ErrHistogram with file and remedy", name, err)
		}
	}
	if in.Header().Shape.Layers != 0 {
		t.Errorf("header: got %+v, want none", in.Header())
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte("nothing of the kind\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.gz")
	if err := os.WriteFile(cut, []byte("\x1f\x8b\x08\x00\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	none := t.TempDir()
	one := ours(t, "a.trace", 1)
	for _, c := range []struct {
		name  string
		paths []string
		o     Options
		is    error
		want  string
	}{
		{"nothing named", nil, Options{}, nil, "no file"},
		{"missing", []string{filepath.Join(dir, "nowhere")}, Options{}, fs.ErrNotExist, "nowhere"},
		{"unknown form", []string{text}, Options{}, ErrUnknownForm, "notes.txt"},
		{"empty file", []string{empty}, Options{}, ErrUnknownForm, "empty"},
		{"cut compression", []string{cut}, Options{}, nil, "cut.gz"},
		{"unknown name", []string{text}, Options{From: "nonsense"}, ErrUnknownForm, "choose one of outrider"},
		{"another form forced", []string{text}, Options{From: "outrider"}, trace.ErrNotTrace, "notes.txt"},
		{"folder without files", []string{none}, Options{}, nil, "holds no files"},
		{"folder among files", []string{one, dir}, Options{}, nil, "name one folder"},
		{"several files of a form of one", []string{one, one}, Options{}, nil, "one file"},
	} {
		in, err := Open(c.paths, c.o)
		if err == nil {
			in.Close()
			t.Errorf("%s: opened, want an error", c.name)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %v with %q in it", c.name, err, c.is, c.want)
		}
	}
}

// A form that tells all but the number of experts gets the least there can be.
func TestLeastExperts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	rows := "Layer ID,Batch Number,Token,Activated Expert IDs\n1,0,a,\"[3, 1]\"\n2,0,a,\"[0, 6]\"\n"
	if err := os.WriteFile(path, []byte(rows), 0o666); err != nil {
		t.Fatal(err)
	}
	in, err := Open([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got := in.Header().Shape.Experts; got != 7 {
		t.Errorf("got %d experts, want 7: ids go up to 6", got)
	}
	if notes := strings.Join(in.Notes(), " "); !strings.Contains(notes, "--experts") {
		t.Errorf("notes: got %q, want the assumption named", notes)
	}
	given, err := Open([]string{path}, Options{Experts: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer given.Close()
	if got := given.Header().Shape.Experts; got != 16 || len(given.Notes()) > 0 {
		t.Errorf("given: got %d experts and notes %v, want 16 and none", got, given.Notes())
	}
}

// Closing in the middle ends the coroutine; later reads find the end.
func TestCloseInTheMiddle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	_, err = io.WriteString(z, "Layer ID,Batch Number,Token,Activated Expert IDs\n"+strings.Repeat("1,0,a,\"[3, 1]\"\n", 1000))
	if err := errors.Join(err, z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	in, err := Open([]string{path}, Options{Experts: 4, Model: "given"})
	if err != nil {
		t.Fatal(err)
	}
	var a trace.Activation
	if err := in.Next(&a); err != nil || in.Header().Model != "given" {
		t.Fatalf("got %v and model %q, want a token and the model that was given", err, in.Header().Model)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := in.Next(&a); !errors.Is(err, io.EOF) {
		t.Errorf("after Close: got %v, want io.EOF", err)
	}
}

func TestFormsAreWellNamed(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Forms() {
		if f.Name == "" || f.Tool == "" || f.Title == "" || seen[f.Name] || strings.ToLower(f.Name) != f.Name || strings.Contains(f.Name, " ") {
			t.Errorf("got form %+v, want a lower-case name of its own, a tool and a title", f)
		}
		seen[f.Name] = true
	}
}

// companions are files of the collection that are read only beside others.
var companions = map[string]bool{"prompt-spans.json": true}

// severalModels need a word about which of their models is meant.
var severalModels = map[string]Options{"counts.json.gz": {Model: "olmoe"}}

// TestSharedCollection imports every file of the collection beside the repository.
func TestSharedCollection(t *testing.T) {
	root := testfiles.Shared(t, "traces")
	if testing.Short() {
		t.Skip("reads some 70 files")
	}
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".md") || companions[d.Name()] {
			return err
		}
		files++
		in, err := Open([]string{path}, severalModels[d.Name()])
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return nil
		}
		defer in.Close()
		if in.Histogram != nil {
			return nil
		}
		tr, err := trace.ReadAll(in, 2000)
		if err != nil || tr.Len() == 0 {
			t.Errorf("%s: %d tokens, %v", path, tr.Len(), err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 60 {
		t.Errorf("walked %d files of %s, want the whole collection", files, root)
	}
}
