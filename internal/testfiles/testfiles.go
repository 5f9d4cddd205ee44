// Package testfiles finds the files that tests read: those of the repository,
// and the larger collection of models and traces that lies beside it where the
// project is developed, but not on a user's machine.
package testfiles

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Root is the folder of the repository that the test runs in, also from a module of its
// own inside.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && bytes.HasPrefix(mod, []byte("module outrider\n")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod of the repository above the test")
		}
	}
}

// Shared is a file or folder of the collection beside the repository, named
// from its root. The test is skipped where the collection is absent.
func Shared(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(Root(t)), "shared", "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not here: the collection of models and traces does not lie beside the repository", name)
	}
	return path
}
