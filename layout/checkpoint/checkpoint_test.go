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
		{dir, checkpoint.ErrUnknown, "is a folder without"},
		{text, checkpoint.ErrUnknown, "name a GGUF or safetensors file"},
	} {
		_, err := checkpoint.Read(layout.OS(), tt.path)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.word) {
			t.Errorf("%s: got %v, want %v that says %q", tt.path, err, tt.is, tt.word)
		}
	}
}

// Open says of a store what its checkpoint says, and of a checkpoint in place.
func TestOpen(t *testing.T) {
	fsys := layout.OS()
	path := "../../testdata/tinymoe/tinymoe-q8_0.gguf"
	inPlace, err := checkpoint.Open(fsys, path, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer inPlace.Source.Close()
	cp, err := checkpoint.Read(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tinymoe.outrider")
	if _, err := layout.Build(t.Context(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(fsys, dir, layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Source.Close()
	if inPlace.Store != nil || store.Store == nil {
		t.Errorf("got a store in place %v, of a store %v; want none and one", inPlace.Store, store.Store)
	}
	if inPlace.Name != store.Name || inPlace.Architecture != store.Architecture || inPlace.RestBytes != store.RestBytes || inPlace.Format != store.Format {
		t.Errorf("in place %+v, store %+v: want the same model", inPlace, store)
	}
	if len(store.Files) != 1 || store.Files[0].Header != inPlace.Files[0].Header {
		t.Errorf("the store names %+v, want the checkpoint's %+v", store.Files, inPlace.Files)
	}
}
