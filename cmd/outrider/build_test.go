package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDryRunWritesNothingAndForetellsTheBuild(t *testing.T) {
	folder := t.TempDir()
	dir := filepath.Join(folder, "s.outrider")
	flags := []string{"layout", "build", modelFile, "--out", dir, "--lane", "a.bin:2", "--lane", "b.bin:1", "--copies", "10%"}
	var told plannedStore
	unchanged(t, func() {
		told = decode[plannedStore](t, append(flags, "--dry-run", "--probe", known(t, folder))...)
		text := succeed(t, append(flags, "--dry-run")...)
		for _, want := range []string{"this is a dry run", "13,369,344 bytes (13 MiB) in", "a.bin", "would take"} {
			if !strings.Contains(text, want) {
				t.Errorf("got %s, want it to say %q", text, want)
			}
		}
	}, folder, modelFile)
	wantEmpty(t, folder)

	built := decode[buildSummary](t, flags...)
	if told.BytesIn != built.BytesIn || told.BytesOut != built.BytesOut || told.PaddingBytes != built.PaddingBytes || told.CopyBytes != built.CopyBytes || told.Align != built.Align {
		t.Errorf("got %+v foretold, want what was built: %+v", told, built)
	}
	sizes := map[string]int64{}
	for _, f := range told.Devices[0].Files {
		sizes[filepath.Base(f.Path)] = f.Bytes
	}
	for _, name := range []string{"a.bin", "b.bin", "a.bin.copies"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != sizes[name] {
			t.Errorf("%s: got %d bytes foretold, the file is %v, %v", name, sizes[name], info, err)
		}
	}
}

// The time is that of the slowest device, by the profile's rate.
func TestDryRunTellsTheTime(t *testing.T) {
	folder := t.TempDir()
	told := decode[plannedStore](t, "layout", "build", modelFile, "--out", filepath.Join(folder, "s.outrider"), "--dry-run", "--probe", known(t, folder))
	home := told.Devices[0]
	if home.BytesPerSecond == nil || *home.BytesPerSecond != 3.1e9 || home.FreeBytes == nil || home.NeedBytes < told.BytesOut || home.WriteBytes < told.BytesOut || home.ReadBytes < told.BytesOut {
		t.Fatalf("got %+v, want the profile's rate, and all bytes", home)
	}
	if len(told.Devices) > 1 { // the repository lies elsewhere, of which the profile says nothing
		if told.Seconds != nil || len(told.Notes) != 1 || !strings.Contains(told.Notes[0], "give --probe FILE") {
			t.Errorf("got %v s, %q, want a word on the device that was not measured", told.Seconds, told.Notes)
		}
		return
	}
	if want := float64(home.WriteBytes+home.ReadBytes) / 3.1e9; told.Seconds == nil || math.Abs(*told.Seconds-want) > 1e-9 {
		t.Errorf("got %v s, want %v", told.Seconds, want)
	}
}

func TestDryRunTellsWhyItWouldFail(t *testing.T) {
	dir := newStore(t)
	unchanged(t, func() {
		got := invoke(t, "layout", "build", modelFile, "--out", dir, "--dry-run", "--probe", known(t, filepath.Dir(dir)))
		if got.status != exitInput || !strings.Contains(got.stderr, "already exists") {
			t.Errorf("got status %d and %q, want 3 since the store is there", got.status, got.stderr)
		}
	}, dir)
}

func TestBuildResumed(t *testing.T) {
	folder := t.TempDir()
	dir := filepath.Join(folder, "s.outrider")
	ctx, out := canceller(t)
	var stderr strings.Builder
	status := run(ctx, []string{"layout", "build", modelFile, "--out", dir, "--resume"}, out, &stderr)
	if status != exitInterrupted || !strings.Contains(stderr.String(), "the same command goes on with it") {
		t.Fatalf("got status %d and %q, want 130 and how to go on", status, stderr.String())
	}
	if _, err := os.Stat(dir + ".building"); err != nil {
		t.Fatalf("got %v, want that what was built is kept", err)
	}
	refused := invoke(t, "layout", "build", modelFile, "--out", dir)
	if refused.status != exitInput || !strings.Contains(refused.stderr, "(--resume, --discard-unfinished)") {
		t.Errorf("without a flag: got status %d and %q, want 3 and both remedies", refused.status, refused.stderr)
	}
	told := decode[plannedStore](t, "layout", "build", modelFile, "--out", dir, "--resume", "--dry-run")
	if told.Unfinished != dir+".building" {
		t.Errorf("dry run: got %q unfinished, want the folder", told.Unfinished)
	}
	other := invoke(t, "layout", "build", modelFile, "--out", dir, "--resume", "--align", "4096")
	if other.status != exitInput || !strings.Contains(other.stderr, "cannot be resumed") {
		t.Errorf("with another alignment: got status %d and %q, want 3", other.status, other.stderr)
	}
	built := decode[buildSummary](t, "layout", "build", modelFile, "--out", dir, "--resume")
	atOnce := decode[buildSummary](t, "layout", "build", modelFile, "--out", filepath.Join(folder, "t.outrider"))
	if built.ID != atOnce.ID {
		t.Errorf("got store %s, want %s, as it is built at once", built.ID, atOnce.ID)
	}
	if checked := decode[verifySummary](t, "layout", "verify", dir, "--source", modelFile); !checked.OK {
		t.Errorf("got %+v, want a right store", checked)
	}
	if _, err := os.Stat(dir + ".building"); err == nil {
		t.Error("what was unfinished is still there")
	}
}

func TestBuildFlagsThatContradict(t *testing.T) {
	folder := t.TempDir()
	for _, tt := range []struct {
		flags []string
		word  string
	}{
		{[]string{"--resume", "--discard-unfinished"}, "give one of them"},
		{[]string{"--resume", "--lane", "a.bin", "--lane", "b.bin"}, "the weight that was told then"},
		{[]string{"--dry-run", "--lane", "a.bin", "--lane", "b.bin"}, "that would write"},
		{[]string{"--top-k=-1"}, "--top-k is -1"},
	} {
		var stderr strings.Builder
		status := run(t.Context(), append([]string{"layout", "build", modelFile, "--out", filepath.Join(folder, "s")}, tt.flags...), io.Discard, &stderr)
		if status != exitUsage || !strings.Contains(stderr.String(), tt.word) {
			t.Errorf("%v: got status %d and %q, want 2 and %q", tt.flags, status, stderr.String(), tt.word)
		}
	}
	wantEmpty(t, folder)
}
