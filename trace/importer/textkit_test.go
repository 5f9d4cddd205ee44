package importer

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/trace"
)

// txFile writes a file of a test.
func txFile(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// txOpen opens a recording and wants it found as the form.
func txOpen(t testing.TB, form string, o Options, paths ...string) *Import {
	t.Helper()
	i, err := Open(paths, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	})
	if i.Form.Name != form {
		t.Fatalf("found as %s, want %s", i.Form.Name, form)
	}
	return i
}

// txTokens reads all tokens, up to an error.
func txTokens(i *Import) (tokens []trace.Activation, err error) {
	for {
		var a trace.Activation
		switch err := i.Next(&a); {
		case errors.Is(err, io.EOF):
			return tokens, nil
		case err != nil:
			return tokens, err
		}
		tokens = append(tokens, a)
	}
}

func txWantTokens(t testing.TB, i *Import, want []trace.Activation) {
	t.Helper()
	got, err := txTokens(i)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b []float32) bool {
		return cmp.Equal([]float32(append([]float32{}, a...)), append([]float32{}, b...))
	})); diff != "" {
		t.Errorf("tokens (-want +got):\n%s", diff)
	}
}

func txWantNote(t testing.TB, i *Import, part string) {
	t.Helper()
	if !strings.Contains(strings.Join(i.Notes(), "\n"), part) {
		t.Errorf("notes are %q, want one with %q", i.Notes(), part)
	}
}

// txDamage is a recording with something wrong in it.
type txDamage struct {
	name    string
	content string
	want    string // part of the error
	is      error  // a sentinel; nil wants a *trace.CorruptError
	tokens  int    // delivered before the error
	opts    *Options
}

func txRunDamage(t *testing.T, form, file string, o Options, rows []txDamage) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			opts := o
			if row.opts != nil {
				opts = *row.opts
			}
			opts.From = form
			path := txFile(t, file, row.content)
			tokens, err := 0, error(nil)
			var i *Import
			if i, err = Open([]string{path}, opts); err == nil {
				defer i.Close()
				var list []trace.Activation
				if i.Histogram == nil {
					list, err = txTokens(i)
				}
				tokens = len(list)
			}
			if err == nil {
				t.Fatalf("no error, want one with %q", row.want)
			}
			if !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("got error %q, want one with %q and the file's name", err, row.want)
			}
			var corrupt *trace.CorruptError
			if row.is == nil && !errors.As(err, &corrupt) {
				t.Errorf("error %v is no CorruptError", err)
			}
			if row.is != nil && row.is != errAny && !errors.Is(err, row.is) {
				t.Errorf("error %v is not %v", err, row.is)
			}
			if tokens != row.tokens {
				t.Errorf("got %d tokens before the error, want %d", tokens, row.tokens)
			}
		})
	}
}

// txFuzz imports whatever it is given: it must end in tokens that fit the
// header, a histogram that is one, or an error.
func txFuzz(f *testing.F, form, file string, o Options, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), file)
	o.From = form
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		i, err := Open([]string{path}, o)
		if err != nil {
			return
		}
		defer i.Close()
		if i.Histogram != nil {
			if err := i.Histogram.Validate(); err != nil {
				t.Fatal(err)
			}
			return
		}
		h := i.Header()
		check := trace.NewChecker(&h)
		for range len(content) + 1 {
			var a trace.Activation
			if i.Next(&a) != nil {
				return
			}
			if err := check.Check(&a); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatalf("more tokens than the file has bytes (%d)", len(content))
	})
}

// txSum adds the tables of a histogram up.
func txSum(h *trace.Histogram) [][]float64 {
	sum := make([][]float64, h.Layers)
	for l := range sum {
		sum[l] = make([]float64, h.Experts)
		for _, t := range h.Tables {
			for e, n := range t.Counts[l] {
				sum[l][e] += n
			}
		}
	}
	return sum
}

// errAny stands in a txDamage for an error that is neither damage nor a
// sentinel.
var errAny = anyError{}

type anyError struct{}

func (anyError) Error() string { return "any" }
