package lint

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed is the table of docs/architecture.md: what each public package of
// ours may import of ours, tests aside. A folder's rule holds for the folders
// below it that have none of their own.
var allowed = map[string][]string{
	"layout":             nil,
	"layout/discover":    {"layout"},
	"layout/gguf":        {"layout", "layout/discover"},
	"layout/safetensors": {"layout"},
	"layout/checkpoint":  {"layout", "layout/discover", "layout/gguf", "layout/safetensors"},
	"layout/drive":       {"layout"},
	"layout/export":      {"layout", "layout/gguf", "layout/safetensors"},
	"trace":              {"layout"},
	"trace/synth":        {"layout", "trace"},
	"trace/importer":     {"layout", "layout/gguf", "layout/safetensors", "trace", "trace/importer/internal/torchfile"},
	"router":             {"layout", "trace"},
	"router/learned":     {"layout", "trace", "router"},
	trainer:              {"layout", "trace", "router", "router/learned"},
	"experts":            {"layout"},
	"prefetcher":         {"layout", "router", "experts"},
	"runtime":            {"layout", "layout/checkpoint", "layout/drive", "trace", "router", "experts", "prefetcher"},
}

// trainer is not for embedders: it may use the modules of heavy as well.
const trainer = "router/learned/train"

var heavy = []string{"gorgonia.org/gorgonia", "gorgonia.org/tensor"}

// light lists the modules that the packages above may use: those who embed
// runtime get these and no others.
var light = []string{
	"github.com/RoaringBitmap/roaring/v2",
	"github.com/klauspost/compress",
	"github.com/ncw/directio",
	"golang.org/x/sync",
	"golang.org/x/sys",
}

func TestImportsFollowTheTable(t *testing.T) {
	checked := 0
	walkGo(t, func(file string, text []byte) {
		pkg := path.Dir(file)
		rule, ok := ruleOf(pkg)
		if !ok || strings.HasSuffix(file, "_test.go") {
			return
		}
		checked++
		for _, imported := range importsOf(t, file, text) {
			switch ours, isOurs := strings.CutPrefix(imported, "outrider/"); {
			case isOurs && ours != pkg && !slices.Contains(rule, ours):
				t.Errorf("%s imports %s; %s may import of ours only %v", file, imported, pkg, rule)
			case !isOurs && strings.Contains(imported, ".") && !isOf(light, imported) && (pkg != trainer || !isOf(heavy, imported)):
				t.Errorf("%s imports %s, which embedders of runtime would have to carry", file, imported)
			}
		}
	})
	if checked < 20 {
		t.Errorf("checked %d files, want the whole tree: is the table's list of folders right?", checked)
	}
}

// TestEmbeddersCarryNoTrainer: what is embedded brings Gorgonia along by no way round.
func TestEmbeddersCarryNoTrainer(t *testing.T) {
	for _, pkg := range []string{"outrider/runtime", "outrider/router/learned"} {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", pkg, err)
		}
		deps := strings.Fields(string(out))
		if !slices.Contains(deps, "outrider/router") {
			t.Fatalf("%s: got %d packages without the router, want all it is made of", pkg, len(deps))
		}
		for _, dep := range deps {
			if isOf(heavy, dep) || dep == "outrider/"+trainer {
				t.Errorf("%s depends on %s, which embedders would have to carry", pkg, dep)
			}
		}
	}
}

// A program large enough for a module of its own may be cut into packages.
func TestNobodyImportsCommandsOrExamples(t *testing.T) {
	walkGo(t, func(file string, text []byte) {
		if inNestedModule(file) {
			return
		}
		for _, imported := range importsOf(t, file, text) {
			if strings.HasPrefix(imported, "outrider/cmd/") || strings.HasPrefix(imported, "outrider/examples/") {
				t.Errorf("%s imports %s: programs are not libraries", file, imported)
			}
		}
	})
}

func TestNoCgo(t *testing.T) {
	walkGo(t, func(file string, text []byte) {
		if slices.Contains(importsOf(t, file, text), "C") {
			t.Errorf("%s uses cgo", file)
		}
	})
}

func TestFilesStayUnder500Lines(t *testing.T) {
	walkGo(t, func(file string, text []byte) {
		if n := strings.Count(string(text), "\n"); n > 500 {
			t.Errorf("%s has %d lines, want at most 500: split it by concept", file, n)
		}
	})
}

func ruleOf(pkg string) ([]string, bool) {
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if rule, ok := allowed[dir]; ok {
			return rule, true
		}
	}
	return nil, false
}

func isOf(modules []string, imported string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return imported == m || strings.HasPrefix(imported, m+"/")
	})
}

// inNestedModule reports whether a file is of a module below the repository's own.
// Such a module says in its go.mod what it carries; nobody else does.
func inNestedModule(file string) bool {
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(dir), "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// walkGo calls fn with each Go file of the repository, named from its root.
func walkGo(t *testing.T, fn func(file string, text []byte)) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != root {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		fn(filepath.ToSlash(rel), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func importsOf(t *testing.T, file string, text []byte) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range parsed.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		paths = append(paths, p)
	}
	return paths
}
