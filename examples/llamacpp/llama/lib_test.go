package llama

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"outrider/examples/llamacpp/internal/libtest"
)

func library(t testing.TB) *Lib {
	t.Helper()
	l, err := Load(libtest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestVersion(t *testing.T) {
	for version, want := range map[string]bool{
		Version: true, Version + "-dev": true, Version + "-12-gabcdef": true,
		"": false, "0.5": false, "0.5.1": false, "0.5.00": false, "0.5.0.1": false, "0.5.0dev": false, "10.5.0": false, "v" + Version: false, "b9749": false,
	} {
		if got := matches(version); got != want {
			t.Errorf("%q: got %v, want %v", version, got, want)
		}
	}
	if l := library(t); !matches(l.Version) || l.CPU == "" {
		t.Errorf("got version %q and CPU %q, want %s and a name", l.Version, l.CPU, Version)
	}
}

// A folder that is not the library's says so, and what to do.
func TestLoadRefuses(t *testing.T) {
	dir := libtest.Dir(t)
	fake := func(names ...string) string {
		folder := t.TempDir()
		for _, n := range names {
			if err := os.WriteFile(filepath.Join(folder, n), []byte("no library"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return folder
	}
	for _, c := range []struct{ name, dir, word string }{
		{"no folder", filepath.Join(t.TempDir(), "none"), "run fetch.sh"},
		{"empty folder", fake(), "run fetch.sh"},
		{"one of three", fake("libllama.so"), "libggml.so: no such file or directory: run fetch.sh, or name a folder with llama.cpp v0.5.0 by --lib or YZMA_LIB"},
		{"no libraries", fake("libllama.so", "libggml.so", "libggml-base.so"), "libllama.so"},
	} {
		_, err := load(c.dir)
		if err == nil || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.word)
		}
	}
	l := library(t)
	if again, err := Load(dir + string(filepath.Separator) + "."); again != l || err != nil {
		t.Errorf("the same folder again: got %p, %v, want %p", again, err, l)
	}
	if _, err := Load(fake()); !errors.Is(err, ErrLibrary) || !strings.Contains(err.Error(), "is loaded already") {
		t.Errorf("another folder: got %v, want ErrLibrary", err)
	}
}

func TestLogTail(t *testing.T) {
	var l logTail
	if got := l.words(); got != "" {
		t.Errorf("got %q of nothing", got)
	}
	l.add("  \n")
	l.add(" one \n")
	l.add("two")
	if got := l.words(); got != ": one; two" {
		t.Errorf("got %q", got)
	}
	if got := l.words(); got != "" {
		t.Errorf("got %q again", got)
	}
	for range 100 {
		l.add("x")
	}
	if got := strings.Count(l.words(), "x"); got != maxLogLines {
		t.Errorf("%d lines were kept, want %d", got, maxLogLines)
	}
}

func TestCString(t *testing.T) {
	b := []byte("abc\x00def")
	if got := cString(&b[0]); got != "abc" {
		t.Errorf("got %q", got)
	}
	long := []byte(strings.Repeat("x", maxText+10))
	if got := cString(unsafe.SliceData(long)); len(got) != maxText {
		t.Errorf("got %d bytes of a text without end, want %d", len(got), maxText)
	}
}
