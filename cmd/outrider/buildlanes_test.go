package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/drive"
)

func TestBuildRefusesLaneFlags(t *testing.T) {
	folder := t.TempDir()
	out := filepath.Join(folder, "s.outrider")
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--lane", "a.bin:2", "--lane", "b.bin"}, "1 of 2 lanes have a weight"},
		{[]string{"--lane", "a.bin:2", "--lane", "b.bin:1", "--equal-lanes"}, "for two or more lanes without weights"},
		{[]string{"--lane", "a.bin:2", "--lane", "b.bin:1", "--probe", "x"}, "for two or more lanes without weights"},
		{[]string{"--lane", "a.bin", "--lane", "b.bin", "--probe", "x", "--equal-lanes"}, "give one of them"},
		{[]string{"--equal-lanes"}, "for two or more lanes"},
		{[]string{"--lane", "a.bin", "--probe", "x"}, "for two or more lanes"},
		{[]string{"--copies", "5%"}, "--copies needs at least two lanes"},
		{[]string{"--lane", "a.bin", "--copies", "1MiB"}, "--copies needs at least two lanes"},
		{[]string{"--lane", "a.bin", "--lane", "b.bin", "--equal-lanes", "--copies", "some"}, "is no size"},
	} {
		got := invoke(t, append([]string{"layout", "build", modelFile, "--out", out}, test.flags...)...)
		if got.status != exitUsage || !strings.Contains(got.stderr, test.want) {
			t.Errorf("%v: got status %d and %q, want %d and %q", test.flags, got.status, got.stderr, exitUsage, test.want)
		}
	}
	few := []string{"layout", "build", modelFile, "--out", out, "--lane", "a.bin", "--lane", "b.bin", "--equal-lanes", "--copies", "1KiB"}
	if got := invoke(t, few...); got.status != exitInput || !strings.Contains(got.stderr, "the hottest record alone takes") {
		t.Errorf("copies in 1 KiB: got status %d and %q, want %d and what one record takes", got.status, got.stderr, exitInput)
	}
	wantEmpty(t, folder)
}

// fakeDrives answers for folders, as fast as it is told.
type fakeDrives struct {
	rates map[string]float64
	asked []string
}

func (f *fakeDrives) probe(_ context.Context, o drive.Options) (*drive.Profile, error) {
	f.asked = append(f.asked, o.Path)
	if o.Duration > 2*time.Second {
		return nil, errors.New("a lane may take 2 s")
	}
	if f.rates[o.Path] == 0 {
		return nil, errors.New("drive: no answer")
	}
	return &drive.Profile{Path: o.Path, BytesPerSecond: f.rates[o.Path], Warning: "what was measured is memory"}, nil
}

func TestLanesAreWeighedByTheirDevices(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	for _, folder := range []string{"/a", "/b", "/stores"} {
		if err := fsys.MkdirAll(folder); err != nil {
			t.Fatal(err)
		}
	}
	specs := func() []layout.LaneSpec {
		return []layout.LaneSpec{{Path: "/a/1.bin"}, {Path: "/b/2.bin"}, {Path: "/a/3.bin"}, {Path: "lane.bin"}}
	}
	drives := &fakeDrives{rates: map[string]float64{"/a": 3e9, "/b": 1.2345e9, "/stores": 2e5}}
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr}
	c := &buildCmd{Out: "/stores/m"}
	lanes := specs()
	from, err := c.weigh(t.Context(), a, fsys, lanes, drives.probe)
	if err != nil || from != weightsMeasured {
		t.Fatalf("got %q, %v, want measured weights", from, err)
	}
	var weights []float64
	for _, lane := range lanes {
		weights = append(weights, lane.Weight)
	}
	// Two lanes share /a; no lane has less than 1.
	if want := []float64{1500, 1235, 1500, 1}; !slices.Equal(weights, want) || !slices.Equal(drives.asked, []string{"/a", "/b", "/stores"}) {
		t.Errorf("got weights %v from %v, want %v from each folder once", weights, drives.asked, want)
	}
	if !strings.Contains(stdout.String(), "/a/1.bin: weight 1500") || !strings.Contains(stderr.String(), "/b: what was measured is memory") {
		t.Errorf("got %q and %q, want weights and warnings told", stdout.String(), stderr.String())
	}
	if !strings.Contains(stderr.String(), "/a/1.bin and /a/3.bin lie on one device: more than one lane there gains nothing") {
		t.Errorf("got %q, want a word on two lanes of one device", stderr.String())
	}

	delete(drives.rates, "/b")
	if _, err := c.weigh(t.Context(), a, fsys, specs(), drives.probe); err == nil || !strings.Contains(err.Error(), "no answer: give every --lane a weight, or --equal-lanes") {
		t.Errorf("a drive without an answer: got %v, want an error with a remedy", err)
	}
	lost := append(specs(), layout.LaneSpec{Path: "/c/4.bin"})
	if _, err := c.weigh(t.Context(), a, fsys, lost, drives.probe); err == nil || !strings.Contains(err.Error(), "the folder /c, in which /c/4.bin is to lie, does not exist") {
		t.Errorf("a folder that is not there: got %v, want an error that names it", err)
	}
	drives.asked = nil
	c.EqualLanes = true
	lanes = specs()
	if from, err := c.weigh(t.Context(), a, fsys, lanes, drives.probe); err != nil || from != weightsEqual || lanes[0].Weight != 0 || drives.asked != nil {
		t.Errorf("equal lanes: got %q, %v, %+v after asking %v, want nothing measured", from, err, lanes, drives.asked)
	}
}

func TestLanesAreWeighedByProfiles(t *testing.T) {
	folder := t.TempDir()
	first, second := filepath.Join(folder, "a"), filepath.Join(folder, "b")
	for _, name := range []string{first, second} {
		if err := os.Mkdir(name, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	p, err := drive.Probe(t.Context(), drive.Options{Path: first, Duration: time.Second, SpaceBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	saved, stranger := filepath.Join(folder, "drive.json"), filepath.Join(folder, "stranger.json")
	if err := p.Save(saved); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stranger, []byte("{}"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"layout", "build", modelFile, "--lane", first, "--lane", second}
	built := decode[buildSummary](t, append(args, "--out", filepath.Join(folder, "s.outrider"), "--probe", saved)...)
	// One device: its bandwidth is shared.
	if built.WeightsFrom != weightsProfiles || built.LaneWeights[0] != built.LaneWeights[1] || built.LaneWeights[0] > p.BytesPerSecond/2e6+1 {
		t.Errorf("got weights %v from %s, want half of %.0f MB/s from the profile", built.LaneWeights, built.WeightsFrom, p.BytesPerSecond/1e6)
	}
	got := invoke(t, append(args, "--out", filepath.Join(folder, "t.outrider"), "--probe", stranger)...)
	if got.status != exitInput || !strings.Contains(got.stderr, "--probe: ") || !strings.Contains(got.stderr, "stranger.json") {
		t.Errorf("a file of others: got status %d, %q, want %d and its name", got.status, got.stderr, exitInput)
	}
	other := []drive.Profile{{Path: "/no/such/folder"}}
	info, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&laneDevice{folder: first, info: info}).find(layout.OS(), other); err == nil || !strings.Contains(err.Error(), "outrider probe "+first+" --save FILE") {
		t.Errorf("no profile fits: got %v, want how to make one", err)
	}
}

func TestBuildMeasuresLanesWithoutWeights(t *testing.T) {
	folder := t.TempDir()
	out := filepath.Join(folder, "s.outrider")
	built := decode[buildSummary](t, "layout", "build", modelFile, "--out", out, "--lane", "a.bin", "--lane", "b.bin")
	if built.WeightsFrom != weightsMeasured || built.LaneWeights[0] < 1 || built.LaneWeights[0] != built.LaneWeights[1] {
		t.Errorf("got weights %v from %s, want measured ones, the same on one device", built.LaneWeights, built.WeightsFrom)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v and %v, want the store and nothing of the measurement", entries, err)
	}
}

func TestBuildTellsOfIdleLanes(t *testing.T) {
	folder := t.TempDir()
	text := succeed(t, "layout", "build", modelFile, "--out", filepath.Join(folder, "s.outrider"), "--lane", "a.bin:10", "--lane", "b.bin:1")
	for _, want := range []string{"b.bin: gets nothing: ", "a.bin (100.0 %), b.bin (nothing); weights given"} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %q in it", text, want)
		}
	}
}

func TestCopiesFromBuildToVerify(t *testing.T) {
	folder := t.TempDir()
	dir, other := filepath.Join(folder, "s.outrider"), filepath.Join(folder, "other")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	flags := []string{"layout", "build", modelFile, "--lane", "a.bin:1", "--lane", filepath.Join(other, "b.bin") + ":1", "--copies", "25%"}
	built := decode[buildSummary](t, append(flags, "--out", dir, "--trace", tinyTrace)...)
	if total := int64(256 * 52224); built.CopyHeat != "trace" || built.CopyBytes > total/4 || built.CopyBytes < total/5 || built.CopiedRecords < 48 {
		t.Errorf("got %d records in %d bytes by %s, want close to a quarter of %d", built.CopiedRecords, built.CopyBytes, built.CopyHeat, total)
	}
	var onDisk int64
	copies := []string{filepath.Join(dir, "a.bin.copies"), filepath.Join(other, "b.bin.copies")}
	for i, name := range append(copies, filepath.Join(dir, "copies.bin")) {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 && info.Size() != built.LaneCopyBytes[i] {
			t.Errorf("%s: got %d bytes, want %d", name, info.Size(), built.LaneCopyBytes[i])
		}
		onDisk += info.Size()
	}
	if onDisk != built.CopyBytes {
		t.Errorf("got %d bytes of copies on disk, want %d", onDisk, built.CopyBytes)
	}
	unchanged(t, func() {
		checked := decode[verifySummary](t, "layout", "verify", dir, "--source", modelFile)
		if !checked.OK || checked.CopyBytes != built.CopyBytes {
			t.Errorf("verify: got %+v, want %d bytes of copies checked", checked, built.CopyBytes)
		}
		seen := decode[inspection](t, "layout", "inspect", dir)
		if c := seen.Copies; c == nil || c.Records != built.CopiedRecords || c.Bytes != built.CopyBytes || len(c.Lanes) != 2 || seen.Lanes[1].Copies == nil {
			t.Errorf("inspect: got %+v, want the copies of the build on two lanes", c)
		}
		for command, want := range map[string]string{"inspect": "lie a second time", "verify": "bytes, checked too"} {
			if text := succeed(t, "layout", command, dir); !strings.Contains(text, want) {
				t.Errorf("%s: got %s, want %q in it", command, text, want)
			}
		}
	}, folder)

	flip(t, copies[1], 70_000)
	if got := invoke(t, "layout", "verify", dir); got.status != exitWrong || !strings.Contains(got.stdout, "b.bin.copies") {
		t.Errorf("damaged copy: got status %d, %s, want 1 and where", got.status, got.stdout)
	}
	if err := os.Remove(copies[1]); err != nil {
		t.Fatal(err)
	}
	if text := succeed(t, "layout", "inspect", dir); !strings.Contains(text, "copies beside lane 1 are not used: ") {
		t.Errorf("missing copies: got %s, want why they are not used", text)
	}

	even := succeed(t, append(flags[:3:3], "--lane", "a.bin:1", "--lane", "b.bin:1", "--copies", "2MiB", "--out", filepath.Join(folder, "t.outrider"))...)
	if !strings.Contains(even, "spread evenly over the layers: give --trace") {
		t.Errorf("without a trace: got %s, want a word that copies are spread evenly", even)
	}
}
