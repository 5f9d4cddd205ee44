package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/layout/checkpoint"
)

func TestRead(t *testing.T) {
	cp, err := checkpoint.Read(layout.OS(), "../../testdata/tinymoe/tinymoe-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if want := (layout.Shape{Layers: 8, Experts: 32, TopK: 4}); cp.Format != "gguf" || !cp.Shape.Equal(want) {
		t.Errorf("got format %q and shape %+v, want gguf and %+v", cp.Format, cp.Shape, want)
	}
}

func TestReadRefusesWhatIsNoCheckpoint(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte("this is no model, but longer than a header"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		is   error
		word string
	}{
		{filepath.Join(dir, "missing.gguf"), fs.ErrNotExist, "missing.gguf"},
		{dir, checkpoint.ErrUnknown, "is a folder"},
		{text, checkpoint.ErrUnknown, "name a GGUF file"},
	} {
		_, err := checkpoint.Read(layout.OS(), tt.path)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %v, want %v that says %q", tt.path, err, tt.is, tt.word)
		}
	}
}
