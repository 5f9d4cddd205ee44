package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestBuildOnLanesWithTrace(t *testing.T) {
	folder := t.TempDir()
	other := filepath.Join(folder, "other")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(folder, "s.outrider")
	built := decode[buildSummary](t, "layout", "build", modelFile, "--out", dir, "--trace", tinyTrace,
		"--lane", "fast.bin:2", "--lane", other+":1", "--copies", "10%")
	wantLanes := []string{"fast.bin", filepath.Join(other, "s.outrider.lane-1.bin")}
	if strings.Join(built.Lanes, "|") != strings.Join(wantLanes, "|") {
		t.Errorf("lanes: got %v, want %v", built.Lanes, wantLanes)
	}
	if built.BytesIn != built.BytesOut || built.BytesIn != 256*52224 {
		t.Errorf("bytes: got %d in and %d out, want %d both", built.BytesIn, built.BytesOut, 256*52224)
	}
	if got := float64(built.LaneBytes[0]) / float64(built.LaneBytes[1]); got < 1.9 || got > 2.1 || built.WeightsFrom != "given" {
		t.Errorf("lane bytes: got %v by weights %s, want 2 to 1 as given", built.LaneBytes, built.WeightsFrom)
	}
	if file, err := os.Stat(filepath.Join(dir, "router.safetensors")); err != nil || built.RouterBytes != file.Size() || built.NoRouters != "" {
		t.Errorf("routers: got %d bytes (%q), the file is %v, %v", built.RouterBytes, built.NoRouters, file, err)
	}
	seen := decode[inspection](t, "layout", "inspect", dir)
	if built.Order != "co-activation" || seen.Order != "given" || seen.ID != built.ID || len(seen.Lanes) != 2 {
		t.Errorf("got order %q, then %q, id %q, then %q, %d lanes; want the same store ordered by the trace, 2 lanes",
			built.Order, seen.Order, built.ID, seen.ID, len(seen.Lanes))
	}
	unchanged(t, func() {
		checked := decode[verifySummary](t, "layout", "verify", dir, "--source", modelFile)
		if !checked.OK || !checked.Compared || checked.Experts != 256 || checked.RouterBytes != built.RouterBytes {
			t.Errorf("verify: got %+v, want 256 experts compared and right, and the routers' %d bytes", checked, built.RouterBytes)
		}
	}, folder, modelFile)
}

func TestBuildAndVerifyTellOfRouters(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s.outrider")
	if text := succeed(t, "layout", "build", modelFile, "--out", dir); !regexp.MustCompile(`(?m)^routers +\d{6} bytes, for look-ahead$`).MatchString(text) {
		t.Errorf("build: got %s, want the router matrices' size", text)
	}
	if text := succeed(t, "layout", "verify", dir); !regexp.MustCompile(`(?m)^routers +\d{6} bytes, checked too$`).MatchString(text) {
		t.Errorf("verify: got %s, want the router matrices' size", text)
	}
	if got := routersText(0, "layer 3 has type Q2_K"); got != "none, so no look-ahead: layer 3 has type Q2_K" {
		t.Errorf("without routers: got %q, want the reason", got)
	}
}

func TestVerifyFindsDamagedRouters(t *testing.T) {
	dir := newStore(t)
	flip(t, filepath.Join(dir, "router.safetensors"), 100000)
	got := invoke(t, "layout", "verify", dir)
	if got.status != exitWrong || !strings.Contains(got.stdout, "router.safetensors") || !strings.Contains(got.stderr, "1 finding") {
		t.Errorf("got status %d, %s%s, want 1 and one finding in the router matrices", got.status, got.stdout, got.stderr)
	}
}

func TestBuildInterruptedLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	ctx, out := canceller(t)
	var stderr strings.Builder
	status := run(ctx, []string{"layout", "build", modelFile, "--out", filepath.Join(folder, "s.outrider")}, out, &stderr)
	if status != exitInterrupted || stderr.String() != "outrider: interrupted\n" {
		t.Errorf("got status %d and %q, want 130 and a word", status, stderr.String())
	}
	wantEmpty(t, folder)
}

func TestVerifyListsDamage(t *testing.T) {
	dir := newStore(t)
	flip(t, filepath.Join(dir, "lane-0.bin"), 52224*40+100)
	got := invoke(t, "layout", "verify", dir)
	if got.status != exitWrong || !strings.Contains(got.stderr, "is damaged (1 finding): build it again") {
		t.Errorf("got status %d, %q, want 1 and one finding", got.status, got.stderr)
	}
	for _, want := range []string{"result   1 finding\n", "gate", "lane-0.bin"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("got %q, want %q in it", got.stdout, want)
		}
	}
	if got := invoke(t, "layout", "verify", dir, "--json"); !strings.Contains(got.stdout, `"layer": 1,`) ||
		!strings.Contains(got.stdout, `"ok": false`) || got.status != exitWrong {
		t.Errorf("--json: got status %d, %s, want 1 and layer 1", got.status, got.stdout)
	}
}

func TestVerifyDamagedIndexIsAFinding(t *testing.T) {
	for _, name := range []string{"manifest.json", "index.bin"} {
		dir := newStore(t)
		flip(t, filepath.Join(dir, name), 500)
		got := invoke(t, "layout", "verify", dir)
		if got.status != exitWrong || !strings.Contains(got.stdout, name+" is damaged at byte") {
			t.Errorf("%s: got status %d, %q, want 1 and where it is damaged", name, got.status, got.stdout)
		}
		if got := invoke(t, "layout", "inspect", dir); got.status != exitInput {
			t.Errorf("inspect with damaged %s: got status %d, want %d", name, got.status, exitInput)
		}
	}
}

func flip(t *testing.T, path string, at int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 1
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

func wantEmpty(t *testing.T, folder string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s: got %s left, want nothing", folder, e.Name())
	}
}
