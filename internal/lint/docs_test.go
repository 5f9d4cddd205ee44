package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: what the docs say is tested, is. Each must name the tests of all
// its reports.
func TestNamedTestsExist(t *testing.T) {
	for doc, least := range map[string]int{"docs/reads.md": 40, "docs/checkpoints.md": 25, "docs/embedding.md": 12} {
		text := read(t, doc)
		named := regexp.MustCompile("`([a-z0-9_/]+_test\\.go): (Test[A-Za-z0-9]+)`").FindAllStringSubmatch(text, -1)
		if len(named) < least {
			t.Errorf("got %d tests named in %s, want those of all reports", len(named), doc)
		}
		for _, n := range named {
			if !strings.Contains(read(t, n[1]), "func "+n[2]+"(") {
				t.Errorf("%s names %s: %s has no such test", doc, n[2], n[1])
			}
		}
	}
}

// read is the text of one of the repository's files, "" where there is none.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
