package layout_test

import (
	"os"
	"path/filepath"
	"testing"

	"outrider/internal/filetest"
	"outrider/internal/readertest"
	"outrider/layout"
)

// onDisk opens files of a folder of the test's own.
func onDisk(fsys layout.FS, mode layout.Mode) func(t *testing.T, content []byte) layout.File {
	return func(t *testing.T, content []byte) layout.File {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, content, 0o666); err != nil {
			t.Fatal(err)
		}
		if mode == layout.Direct {
			return openDirect(t, fsys, path)
		}
		f, err := fsys.Open(path, mode)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
}

// TestEnginesConform holds every engine of this package to the suite.
func TestEnginesConform(t *testing.T) {
	t.Run("buffered", func(t *testing.T) { filetest.Run(t, onDisk(layout.OS(), layout.Buffered)) })
	t.Run("pread", func(t *testing.T) { filetest.Run(t, onDisk(layout.OS(), layout.Direct)) })
	t.Run("ring", func(t *testing.T) { filetest.Run(t, onDisk(openRing(t, 0), layout.Direct)) })
	t.Run("system", func(t *testing.T) { filetest.Run(t, onDisk(openSystem(t, layout.SystemOptions{}), layout.Direct)) })
}

// TestReadersConform holds the readers of rings to their suite, and to that of files.
func TestReadersConform(t *testing.T) {
	for _, depth := range []int{2, 64} {
		open := onDisk(openRing(t, depth), layout.Direct)
		readertest.Run(t, func(t *testing.T, test func(*testing.T)) { test(t) }, open)
		filetest.Run(t, func(t *testing.T, content []byte) layout.File {
			f := open(t, content)
			if layout.NewReader(f) == nil {
				t.Skipf("engine %q has no reader here", layout.Engine(f))
			}
			return readertest.Through(f)
		})
	}
}
