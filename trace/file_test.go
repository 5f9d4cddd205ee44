package trace

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"outrider/layout"
)

func TestCreateAndOpen(t *testing.T) {
	want := skewed(t, layout.Shape{Layers: 4, Experts: 16, TopK: 4}, 2000, false)
	tests := []struct {
		name, begins string
	}{
		{"a.trace", traceMagic},
		{"a.trace.gz", "\x1f\x8b"},
		{"a.trace.zst", "\x28\xb5\x2f\xfd"},
		{"a.jsonl", "{"},
		{"a.jsonl.gz", "\x1f\x8b"},
		{"a.jsonl.zst", "\x28\xb5\x2f\xfd"},
		{"plain", traceMagic},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), test.name)
			w, err := Create(path, want.Header)
			if err != nil {
				t.Fatal(err)
			}
			pour(t, want, w)
			if err := errors.Join(w.Close(), w.Flush()); err != nil {
				t.Errorf("second Close: %v", err)
			}
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(content), test.begins) {
				t.Errorf("file begins with %q, want %q", content[:8], test.begins)
			}
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := ReadAll(f, 0)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(want, got); d != "" {
				t.Errorf("trace read back differs (-want +got):\n%s", d)
			}
			if err := errors.Join(f.Close(), f.Close()); err != nil {
				t.Errorf("Close twice: %v", err)
			}
			if _, err := Create(path, want.Header); !errors.Is(err, os.ErrExist) {
				t.Errorf("Create over a file: got %v, want %v", err, os.ErrExist)
			}
		})
	}
}

func TestCreateLeavesNothingBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.trace")
	if _, err := Create(path, Header{}); err == nil {
		t.Error("Create with an empty header: got no error")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("file after a failed Create: got %v, want %v", err, os.ErrNotExist)
	}
}

// What was flushed is in the file, though the process then dies.
func TestFlushedFileIsReadable(t *testing.T) {
	tr := skewed(t, layout.Shape{Layers: 4, Experts: 16, TopK: 4}, 100, false)
	for _, name := range []string{"a.trace", "a.trace.gz", "a.trace.zst", "a.jsonl.gz", "a.jsonl.zst"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			w, err := Create(path, tr.Header)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			var a Activation
			for i := range tr.Len() {
				tr.At(i, &a)
				if err := w.Append(&a); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			got, err := ReadAll(f, 0)
			var torn *TornError
			if !errors.As(err, &torn) || torn.Tokens != 100 || torn.Path != path || got.Len() != 100 {
				t.Errorf("got %d tokens and %v, want 100 and a *TornError of %s", got.Len(), err, path)
			}
		})
	}
}

func TestOpenFileNamesTheFile(t *testing.T) {
	good := binaryOf(t, small(t))
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	tests := []struct {
		name     string
		content  []byte
		sentinel error
		want     string
	}{
		{"foreign", []byte("GGUF\x03\x00\x00\x00"), ErrNotTrace, "looked for a binary trace"},
		{"empty", nil, ErrNotTrace, "looked for"},
		{"short", []byte("{"), ErrNotTrace, "no header object"},
		{"foreign in gzip", gzipOf(t, []byte("hello there")), ErrNotTrace, `begins with "hello th"`},
		{"gzip in gzip", gzipOf(t, gzipOf(t, good)), ErrNotTrace, "looked for"},
		{"gzip head only", []byte("\x1f\x8b\x08\x00"), ErrTorn, "0 tokens"},
		{"gzip head wrong", []byte("\x1f\x8b\xff\x00\x00\x00\x00\x00\x00\x00\x00"), nil, "cannot decompress"},
		{"gzip sum wrong", flip(gzipOf(t, good), -6), nil, "cannot decompress"},
		{"gzip cut", gzipOf(t, good)[:60], ErrTorn, "tokens before the tear"},
		{"zstd head wrong", []byte("\x28\xb5\x2f\xfd\xff\xff\xff\xff"), nil, "cannot decompress"},
		{"zstd sum wrong", flip(zstdOf(t, good), -2), nil, "cannot decompress"},
		{"zstd cut", zstdOf(t, good)[:60], ErrTorn, "tokens before the tear"},
		{"damaged", bad, nil, "damaged at byte 156: checksum is"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "some.trace")
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFile(path)
			if err == nil {
				_, err = drain(t, f)
				defer f.Close()
			}
			wantError(t, err, test.sentinel, test.want)
			if err != nil && strings.Count(err.Error(), path) != 1 {
				t.Errorf("got %q, want the file named once", err)
			}
		})
	}
	if _, err := OpenFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: got %v, want %v", err, os.ErrNotExist)
	}
}

func flip(b []byte, from int) []byte {
	b[len(b)+from] ^= 1
	return b
}

func gzipOf(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstdOf(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(b, nil)
}
