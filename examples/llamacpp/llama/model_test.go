package llama

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/internal/libtest"
	"outrider/layout"
	"outrider/layout/gguf"
)

func openTiny(t testing.TB) *Model {
	t.Helper()
	m, err := library(t).Open(libtest.Tiny(t), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newContext(t testing.TB, m *Model, o ContextOptions) *Context {
	t.Helper()
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func items(tokens []int32, from int32) []Item {
	var list []Item
	for i, token := range tokens {
		list = append(list, Item{Token: token, Position: from + int32(i), Logits: i == len(tokens)-1})
	}
	return list
}

func TestVocabulary(t *testing.T) {
	m := openTiny(t)
	if m.Tokens != 2048 || m.Context != 512 || m.Forgetful || !strings.Contains(m.About, "qwen3moe") || m.Library() == "" {
		t.Errorf("got %d tokens, context %d, forgetful %v, %q, library %q", m.Tokens, m.Context, m.Forgetful, m.About, m.Library())
	}
	for _, p := range libtest.ShippedReference(t) {
		if got := m.Tokenize(p.Text); !slices.Equal(got, p.IDs) {
			t.Errorf("%s: got %v, want %v", p.Name, got, p.IDs)
		}
		if got := m.Text(p.IDs); got != p.Text {
			t.Errorf("%s: got %q, want %q", p.Name, got, p.Text)
		}
	}
	if !m.Ends(2047) || m.Ends(5) {
		t.Error("the end of a text is not token 2047")
	}
	for _, odd := range []string{"", "ä€𝄞", strings.Repeat("long ", 3000)} {
		if got := m.Text(m.Tokenize(odd)); got != odd {
			t.Errorf("%.20q: comes back as %.20q", odd, got)
		}
	}
	if got := m.Text(m.Tokenize("a\x00b\x00")); got != "ab" {
		t.Errorf("zero bytes: got %q, want them left out", got)
	}
	for _, token := range []int32{-1, 2048, 1 << 30} {
		if got := m.Piece(token); len(got) != 0 {
			t.Errorf("token %d: got %q, want nothing", token, got)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	l := library(t)
	text := filepath.Join(t.TempDir(), "text.gguf")
	if err := os.WriteFile(text, []byte("this is no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "nowhere.gguf", text} {
		if m, err := l.Open(path, true); err == nil || !strings.Contains(err.Error(), "llama: load "+path) {
			t.Errorf("%q: got %v, %v", path, m, err)
		}
	}
}

// A model of a header and of what Place gives is that of the file.
func TestBuild(t *testing.T) {
	l := library(t)
	file, err := gguf.Open(layout.OS(), libtest.Tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	header, err := file.Merged()
	if err != nil {
		t.Fatal(err)
	}
	from, err := os.Open(libtest.Tiny(t))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	placed := 0
	fill := func(x *ggml.Tensor, fill FillFunc) error {
		placed++
		s, ok := file.Tensor(x.Name())
		if !ok {
			return errors.New("no tensor " + x.Name())
		}
		b := make([]byte, s.Bytes)
		if _, err := io.ReadFull(io.NewSectionReader(from, s.Offset, s.Bytes), b); err != nil {
			return err
		}
		half := len(b) / 2
		fill(b[half:], int64(half))
		fill(b[:half], 0)
		fill(nil, 0)
		return nil
	}
	m, err := l.Build(BuildOptions{Header: header, Place: fill})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if want := len(file.Tensors()); placed != want {
		t.Errorf("%d tensors were asked for, want %d", placed, want)
	}
	tokens := libtest.ShippedReference(t)[0].IDs
	var logits [2][]float32
	for i, m := range []*Model{m, openTiny(t)} {
		c := newContext(t, m, ContextOptions{Tokens: 64, Threads: 1})
		if err := c.Decode(items(tokens, 0)); err != nil {
			t.Fatal(err)
		}
		got, err := c.Logits(len(tokens) - 1)
		if err != nil {
			t.Fatal(err)
		}
		logits[i] = slices.Clone(got)
	}
	if !slices.Equal(logits[0], logits[1]) {
		t.Error("a model that was built has other logits than the file's")
	}

	mine := errors.New("mine")
	for _, c := range []struct {
		name string
		o    BuildOptions
		is   error
		word string
	}{
		{"no header", BuildOptions{Place: fill}, nil, "the header is empty"},
		{"no GGUF", BuildOptions{Header: []byte("this is no header at all"), Place: fill}, nil, "llama.cpp does not take the header"},
		{"half a header", BuildOptions{Header: header[:len(header)/2], Place: fill}, nil, "llama.cpp does not take the header"},
		{"an error of Place", BuildOptions{Header: header, Place: func(*ggml.Tensor, FillFunc) error { return mine }}, mine, "llama: build a model: mine"},
		{"an error of Place, own tensors", BuildOptions{Header: header, Own: []string{"blk.0.ffn_up_exps.weight"}, Place: func(*ggml.Tensor, FillFunc) error { return mine }}, mine, "mine"},
	} {
		got, err := l.Build(c.o)
		if err == nil || !strings.Contains(err.Error(), c.word) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: got %v, %v, want %q", c.name, got, err, c.word)
		}
	}
	if len(reserves.by) != 1 || len(placers.by) != 0 {
		t.Errorf("%d buffer types and %d callbacks are left, want the open model's", len(reserves.by), len(placers.by))
	}
}
