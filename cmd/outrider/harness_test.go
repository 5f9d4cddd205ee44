package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	modelFile  = "../../testdata/tinymoe/tinymoe-q8_0.gguf"
	tinyTrace  = "../../testdata/traces/tinymoe-2000.jsonl.gz"
	otherTrace = "../../testdata/traces/gpt-oss-20b-300.jsonl.gz"
)

// outcome is what one call of the program gave.
type outcome struct {
	stdout, stderr string
	status         int
}

func invoke(t testing.TB, args ...string) outcome {
	t.Helper()
	t.Setenv("COLUMNS", "80") // the help's width
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), args, &stdout, &stderr)
	return outcome{stdout: stdout.String(), stderr: stderr.String(), status: status}
}

// succeed is invoke for a call that must work.
func succeed(t testing.TB, args ...string) string {
	t.Helper()
	got := invoke(t, args...)
	if got.status != exitDone {
		t.Fatalf("outrider %v: got status %d (%s), want 0", args, got.status, got.stderr)
	}
	return got.stdout
}

// decode is succeed with --json.
func decode[T any](t testing.TB, args ...string) T {
	t.Helper()
	var value T
	text := succeed(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("outrider %v --json: got %q, want one JSON object: %v", args, text, err)
	}
	return value
}

// golden compares with testdata/name.golden, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (make it with go test -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: want -, got + (go test -update writes it anew):\n%s", path, diff)
	}
}

var volatile = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?m)^took .*$`), "took  (time)"},
	{regexp.MustCompile(` in [0-9.]+ s, .*/s`), " in (time)"},
	{regexp.MustCompile(`has [0-9.]+ [KMGTPE]?i?B free`), "has (space) free"},
	{regexp.MustCompile(`(?m)(direct, aligned to \d+|buffered: .*)$`), "(how)"},
	{regexp.MustCompile(`(?m)^(all in memory|least budget|token cycle) +[0-9,]+ bytes \([^)]*\)`), "$1  (bytes)"},
	{regexp.MustCompile(`\d+ bytes given, one layer of one token needs \d+`), "(bytes) given, one layer of one token needs (bytes)"},
	{regexp.MustCompile(`─{3,}`), "───"},
}

// settle takes out what differs between machines and runs: folders, times, and
// the widths that follow from them.
func settle(text string, folders ...string) string {
	for i, folder := range folders {
		text = strings.ReplaceAll(text, folder, fmt.Sprintf("$%d", i+1))
	}
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	if len(folders) > 0 {
		text = regexp.MustCompile(` {2,}`).ReplaceAllString(text, "  ")
	}
	return text
}

// newStore builds a store of the shipped model in a temporary folder.
func newStore(t *testing.T, flags ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tiny.outrider")
	succeed(t, append([]string{"layout", "build", modelFile, "--out", dir}, flags...)...)
	return dir
}

// fingerprint is the names, times and content of all files below a path.
func fingerprint(t *testing.T, path string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		fmt.Fprintf(&out, "%s %v %v %x\n", name, info.Mode(), info.ModTime(), sha256.Sum256(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// unchanged proves that f leaves all below the paths as it was.
func unchanged(t *testing.T, f func(), paths ...string) {
	t.Helper()
	var before []string
	for _, p := range paths {
		before = append(before, fingerprint(t, p))
	}
	f()
	for i, p := range paths {
		if diff := cmp.Diff(before[i], fingerprint(t, p)); diff != "" {
			t.Errorf("%s has changed:\n%s", p, diff)
		}
	}
}

// cancelOn is a writer that ends a context when it is first written to.
type cancelOn struct {
	cancel context.CancelFunc
	got    bytes.Buffer
}

func (c *cancelOn) Write(p []byte) (int, error) {
	c.cancel()
	return c.got.Write(p)
}
