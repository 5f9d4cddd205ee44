package layout_test

import (
	"os"
	"path/filepath"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// diskModel puts a model's files into a folder of the disk.
func diskModel(t testing.TB, dir string, model modelSpec) layout.Checkpoint {
	t.Helper()
	mem := memfs.New(memfs.Options{})
	cp := source(t, mem, model)
	for i, data := range sourceFiles(t, mem, cp) {
		cp.Files[i].Path = filepath.Join(dir, filepath.Base(cp.Files[i].Path))
		if err := os.WriteFile(cp.Files[i].Path, data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return cp
}
