package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: what docs/reads.md says is tested, is.
func TestNamedTestsExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "reads.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z0-9_/]+_test\\.go): (Test[A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 40 {
		t.Fatalf("got %d tests named in docs/reads.md, want those of all reports", len(named))
	}
	for _, n := range named {
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(n[1])))
		if err != nil {
			t.Errorf("docs/reads.md names %s: %v", n[1], err)
			continue
		}
		if !strings.Contains(string(source), "func "+n[2]+"(") {
			t.Errorf("docs/reads.md names %s: %s has no such test", n[2], n[1])
		}
	}
}
