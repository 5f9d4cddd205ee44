package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/gain"
	"outrider/layout/drive"
)

// forecasted is a forecast whose figures do not depend on a drive.
func forecasted() *gainForecast {
	free := int64(500 << 30)
	return &gainForecast{
		Checkpoint: "models/big", Model: "Big-30B", Dir: "/mnt/fast", FreeBytes: &free,
		Result: &gain.Result{
			Sample:            gain.Sample{Layers: 8, Experts: 16, Batch: 8, Bytes: 128 << 20},
			InPlace:           gain.Arm{ReadsPerExpert: 3, ReadsPerToken: 1152, BytesPerToken: 1.21e9, BytesPerSecond: 2.1e9, ShareOfRaw: 0.7, StallPerToken: 0.57, Direct: true, Engine: "io_uring"},
			Store:             gain.Arm{ReadsPerExpert: 1, ReadsPerToken: 384, BytesPerToken: 1.19e9, BytesPerSecond: 2.8e9, ShareOfRaw: 0.93, StallPerToken: 0.42, Direct: true, Engine: "io_uring"},
			RawBytesPerSecond: 3e9, RawBlockBytes: 1 << 20, Depth: 8, RawDepth: 16, Rounds: 25, Gain: gain.Quartiles{Low: 1.3, Median: 1.34, High: 1.4}, Again: 1.01,
			Verdict: gain.Pays, Reason: "batches come 1.34 times as fast", SameDrive: true, StoreBytes: 16 << 30, BuildSeconds: 41.2, TokensToPay: 1274.6,
		},
	}
}

func TestLayoutForecastTextGolden(t *testing.T) {
	var out bytes.Buffer
	forecasted().writeTo(&out)
	f := forecasted()
	f.FreeBytes, f.Verdict, f.Reason = nil, gain.PaysNot, "in place already reaches 97 % of the raw rate: its reads are few and large"
	f.SameDrive, f.Again, f.InPlace.Direct, f.InPlace.Engine, f.InPlace.Fallback = false, 1.4, false, "buffered", "the file system refuses direct reads"
	f.Notes = forecastNotes(f.Result, &drive.Profile{Warning: "memory was measured, not a drive", Device: drive.Device{Rotational: true}})
	if len(f.Notes) != 5 {
		t.Errorf("got %d notes, want one for each of five doubts: %q", len(f.Notes), f.Notes)
	}
	out.WriteString("\n\n")
	f.writeTo(&out)
	golden(t, "layout-forecast", out.String())
}

// known is a saved profile of a folder, so that nothing is measured for it.
func known(t *testing.T, folder string) string {
	t.Helper()
	p := probed()
	p.Path = folder
	path := filepath.Join(t.TempDir(), "drive.json")
	if err := p.Save(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLayoutForecastMeasures(t *testing.T) {
	folder := t.TempDir()
	unchanged(t, func() {
		f := decode[gainForecast](t, "layout", "forecast", modelFile, "--out", filepath.Join(folder, "tiny.outrider"), "--probe", known(t, folder), "--seconds", "2")
		if f.Dir != folder || f.Model != "tinymoe" || f.Depth != 4 || f.Sample.Bytes != 256*52224 || f.StoreBytes < 256*52224 {
			t.Errorf("got %+v, want a sample of all of tinymoe for a store in %s, at the profile's depth", f, folder)
		}
		if f.InPlace.ReadsPerToken != 96 || f.Store.ReadsPerToken != 32 {
			t.Errorf("reads a token: got %v and %v, want 3 and 1 an expert of 8 x 4", f.InPlace.ReadsPerToken, f.Store.ReadsPerToken)
		}
		if f.Verdict == "" || f.Reason == "" || f.Rounds == 0 || f.InPlace.BytesPerSecond <= 0 || f.Store.StallPerToken <= 0 {
			t.Errorf("got %+v, want figures and a verdict", f.Result)
		}
	}, modelFile)
	wantEmpty(t, folder)
}

func TestLayoutForecastInterruptedLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	ctx, out := canceller(t)
	_, _ = out.Write(nil) // ended before it begins
	var stderr strings.Builder
	status := run(ctx, []string{"layout", "forecast", modelFile, "--out", folder, "--probe", known(t, folder)}, io.Discard, &stderr)
	if status != exitInterrupted || stderr.String() != "outrider: interrupted\n" {
		t.Errorf("got status %d and %q, want 130 and a word", status, stderr.String())
	}
	wantEmpty(t, folder)
}

func TestLayoutForecastErrors(t *testing.T) {
	folder := t.TempDir()
	missing, text := filepath.Join(folder, "missing"), filepath.Join(folder, "letter.txt")
	if err := os.WriteFile(text, []byte("Dear Sir, this is no model.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	unchanged(t, func() {
		for _, tt := range []struct {
			args   []string
			status int
			word   string
		}{
			{[]string{missing}, exitInput, "no such file"},
			{[]string{text}, exitInput, "letter.txt"},
			{[]string{modelFile, "--out", filepath.Join(missing, "a", "b")}, exitInput, "make it first"},
			{[]string{modelFile, "--out", filepath.Join(text, "b")}, exitInput, "letter.txt"},
			{[]string{modelFile, "--probe", text}, exitInput, "--probe"},
			{[]string{modelFile, "--space", "10%"}, exitUsage, "not a share"},
			{[]string{modelFile, "--space", "1"}, exitUsage, "temporary store"},
			{[]string{modelFile, "--seconds", "0"}, exitUsage, "--seconds is 0"},
			{[]string{modelFile, "--seconds", "0.5"}, exitUsage, "duration of 500ms"},
			{[]string{modelFile, "--top-k=-1"}, exitUsage, "--top-k is -1"},
			{[]string{}, exitUsage, "<checkpoint>"},
		} {
			got := invoke(t, append([]string{"layout", "forecast"}, tt.args...)...)
			if got.status != tt.status || !strings.Contains(got.stderr, tt.word) || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
				t.Errorf("layout forecast %v: got status %d, %q, want %d and one line that says %q", tt.args, got.status, got.stderr, tt.status, tt.word)
			}
		}
	}, folder)
}
