// Package testtrace reads recorded routing traces for tests.
package testtrace

import (
	"testing"

	"outrider/internal/testfiles"
	"outrider/trace"
)

// Shared reads the first tokens of a trace of the collection beside the
// repository, named as for testfiles.Shared. The test is skipped where the
// collection is absent.
func Shared(t testing.TB, name string, tokens int) *trace.Trace {
	t.Helper()
	f, err := trace.OpenFile(testfiles.Shared(t, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := trace.ReadAll(f, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}
