package importer

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outrider/internal/testfiles"
	"outrider/trace"
)

// named is a file of a test.
type named struct{ name, text string }

// written writes files into a new folder and returns their paths.
func written(t testing.TB, files ...named) []string {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// shown is a token in one line: "seq/pos phase #token ids|ids @ weights|weights".
func shown(h trace.Header, a *trace.Activation) string {
	s := &strings.Builder{}
	fmt.Fprintf(s, "%d/%d %s", a.Seq, a.Pos, a.Phase)
	if h.Tokens {
		fmt.Fprintf(s, " #%d", a.Token)
	}
	var ids, weights []string
	for l := range h.Shape.Layers {
		row, w := a.Row(l, h.Shape.TopK)
		ids = append(ids, strings.Trim(fmt.Sprint(row), "[]"))
		weights = append(weights, strings.Trim(fmt.Sprint(w), "[]"))
	}
	fmt.Fprintf(s, " %s", strings.Join(ids, "|"))
	if h.Weights {
		fmt.Fprintf(s, " @ %s", strings.Join(weights, "|"))
	}
	return s.String()
}

// readOut reads a stream to its end.
func readOut(s trace.Stream) (tokens []string, err error) {
	var a trace.Activation
	for {
		if err := s.Next(&a); errors.Is(err, io.EOF) {
			return tokens, nil
		} else if err != nil {
			return tokens, err
		}
		tokens = append(tokens, shown(s.Header(), &a))
	}
}

// sample is a recording, and what it must be read as when nothing but its
// content tells its form.
type sample struct {
	form   string
	files  []named
	opts   Options
	header trace.Header
	tokens []string
	notes  []string // parts of each note
}

func (s sample) run(t *testing.T) {
	t.Helper()
	imp, err := Open(written(t, s.files...), s.opts)
	if err != nil {
		t.Fatal(err)
	}
	defer imp.Close()
	if imp.Form.Name != s.form {
		t.Fatalf("form: got %s, want %s", imp.Form.Name, s.form)
	}
	if got := imp.Header(); !reflect.DeepEqual(got, s.header) {
		t.Errorf("header:\ngot  %+v\nwant %+v", got, s.header)
	}
	got, err := readOut(imp)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, s.tokens) {
		t.Errorf("tokens:\ngot  %s\nwant %s", strings.Join(got, "\n     "), strings.Join(s.tokens, "\n     "))
	}
	if len(imp.Notes()) != len(s.notes) {
		t.Fatalf("notes: got %q, want %d", imp.Notes(), len(s.notes))
	}
	for i, note := range imp.Notes() {
		if !strings.Contains(note, s.notes[i]) {
			t.Errorf("note %d: got %q, want %q in it", i, note, s.notes[i])
		}
	}
}

// brokenCase is a recording that must be refused, after the tokens named.
type brokenCase struct {
	name   string
	files  []named
	want   string // in the error
	tokens []string
	is     error // the sentinel, if it is no damage
}

// refuses opens and reads each case and checks the error.
func refuses(t *testing.T, form string, o Options, cases []brokenCase) {
	t.Helper()
	o.From = form
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			imp, err := Open(written(t, c.files...), o)
			if err == nil {
				defer imp.Close()
				got, err = readOut(imp)
			}
			if err == nil {
				t.Fatalf("got tokens %q, want an error with %q", got, c.want)
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), form) {
				t.Errorf("got error %q, want %q and the form's name in it", err, c.want)
			}
			var corrupt *trace.CorruptError
			switch {
			case c.is != nil && !errors.Is(err, c.is):
				t.Errorf("got error %v, want one that is %v", err, c.is)
			case c.is == nil && !errors.As(err, &corrupt):
				t.Errorf("got error %v, want a CorruptError", err)
			case c.is == nil && corrupt.Path == "":
				t.Errorf("error %v names no file", err)
			}
			if !slices.Equal(got, c.tokens) {
				t.Errorf("tokens before the error: got %q, want %q", got, c.tokens)
			}
		})
	}
}

// fuzzForm feeds a form with what is like the seeds: nothing may panic or hang,
// and what comes out must be a trace.
func fuzzForm(f *testing.F, form string, o Options, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	path := filepath.Join(f.TempDir(), "seed")
	o.From = form
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		imp, err := Open([]string{path}, o)
		if err != nil {
			return
		}
		defer imp.Close()
		h := imp.Header()
		if err := h.Validate(); err != nil {
			t.Fatal(err)
		}
		check := trace.NewChecker(&h)
		var a trace.Activation
		for range 1 << 16 {
			if imp.Next(&a) != nil {
				return
			}
			if err := check.Check(&a); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// sharedStream opens a file of the collection beside the repository.
func sharedStream(t *testing.T, o Options, names ...string) *Import {
	t.Helper()
	var paths []string
	for _, name := range names {
		paths = append(paths, testfiles.Shared(t, "traces/"+name))
	}
	imp, err := Open(paths, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = imp.Close() })
	return imp
}

// equalNeutral checks that two streams have the same tokens, once change has had
// its way with ours. The collection's weights were rounded to five digits.
func equalNeutral(t *testing.T, got trace.Stream, neutral string, change func(a *trace.Activation)) int {
	t.Helper()
	want := sharedStream(t, Options{}, neutral)
	shape, wantShape := got.Header().Shape, want.Header().Shape
	if !slices.Equal(shape.LayerIDs, wantShape.LayerIDs) && !slices.Equal(countTo(shape.Layers), wantShape.LayerIDs) {
		t.Errorf("layer ids: got %v, want %v", shape.LayerIDs, wantShape.LayerIDs)
	}
	if shape.LayerIDs, wantShape.LayerIDs = nil, nil; !reflect.DeepEqual(shape, wantShape) {
		t.Fatalf("shape: got %+v, want %+v", shape, wantShape)
	}
	var a, b trace.Activation
	for n := 0; ; n++ {
		err, wantErr := got.Next(&a), want.Next(&b)
		if errors.Is(err, io.EOF) && errors.Is(wantErr, io.EOF) {
			return n
		}
		if err != nil || wantErr != nil {
			t.Fatalf("token %d: got error %v, neutral file %v", n, err, wantErr)
		}
		for i, w := range a.Weights {
			a.Weights[i] = fiveDigits(w)
		}
		if change != nil {
			change(&a)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("token %d:\ngot  %+v\nwant %+v", n, a, b)
		}
	}
}

func fiveDigits(w float32) float32 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(float64(w), 'g', 5, 64), 32)
	return float32(rounded)
}
