package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/iobench"
)

// quickBench is a whole run, with batches that take little of the drive.
var quickBench = []string{"bench", "--batches", "4x64KiB,2x16KiB", "--size", "8MiB", "--seconds", "1", "--raw", "own"}

func TestBenchMeasures(t *testing.T) {
	dir := t.TempDir()
	r := decode[iobench.Result](t, append(quickBench, "--dir", dir)...)
	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		if strings.HasPrefix(row.Name, "batch-") && (row.ShareOfRaw == nil || *row.ShareOfRaw <= 0 || row.P50 == nil || *row.P50 <= 0 || row.AllocsPerOp == nil) {
			t.Errorf("%s: got %+v, want a share of the raw rate and times", row.Name, row)
		}
	}
	want := "batch-4x64KiB batch-4x64KiB+crc batch-4x64KiB+ahead single-64KiB batch-2x16KiB batch-2x16KiB+crc batch-2x16KiB+ahead single-16KiB mixed-alone mixed-demand hits hits+forecast writes"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("got rows %s, want %s", got, want)
	}
	if r.RawBytesPerSecond <= 0 || !strings.HasPrefix(r.Raw.Reader, "own loop, ") || r.Raw.Depth < 2 || len(r.Raw.Blocks) != 2 || r.Raw.Again <= 0 {
		t.Errorf("raw: got %+v, want our own loop's rates", r.Raw)
	}
	if r.Copies.Checked == 0 || r.Copies.Copied != 0 {
		t.Errorf("copies: got %+v, want none of some", r.Copies)
	}
	if r.Direct && r.Residue.Share != nil && *r.Residue.Share >= 0.01 {
		t.Errorf("page cache: got %v of the bytes read, want under 1 %%", *r.Residue.Share)
	}
	if w := r.Rows[len(r.Rows)-1].Writes; w != nil && (w.DriveBytes != 0 || w.Uses < 100_000) {
		t.Errorf("writes: got %+v, want 0 bytes to a drive in 100,000 uses", w)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v), want nothing", left, err)
	}
}

func TestBenchReadsAStore(t *testing.T) {
	dir := newStore(t)
	unchanged(t, func() {
		got := invoke(t, "bench", "--store", dir, "--seconds", "1", "--raw", "own", "--engine", "pread")
		if got.status != exitDone {
			t.Fatalf("got status %d: %s", got.status, got.stderr)
		}
		for _, want := range []string{"batch-4x52KiB", "raw reader", "own loop, ", "first arm again", "0 of "} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("got no %q in\n%s", want, got.stdout)
			}
		}
		if strings.Contains(got.stderr, "writing") {
			t.Errorf("stderr: got %q, want nothing written", got.stderr)
		}
	}, dir)
}

func TestBenchRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{exitUsage, "--seconds", []string{"--seconds", "0"}},
		{exitUsage, "--seconds", []string{"--seconds", "3601"}},
		{exitUsage, "--size", []string{"--size", "5%"}},
		{exitUsage, "805306368", []string{"--size", "1MiB", "--dir", dir}},
		{exitUsage, "no batch", []string{"--batches", "8x"}},
		{exitUsage, "--raw", []string{"--raw", "dd"}},
		{exitUsage, "--engine", []string{"--engine", "aio"}},
		{exitInput, "--dir", []string{"--dir", filepath.Join(dir, "missing")}},
		{exitFailed, "not enough space", []string{"--size", "1000TiB", "--dir", dir}},
		{exitInput, "missing", []string{"--store", filepath.Join(dir, "missing")}},
	} {
		got := invoke(t, append([]string{"bench", "--raw", "own"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("bench %v: got status %d, %q, want %d with %q in one line", c.args, got.status, got.stderr, c.status, c.want)
		}
	}
	t.Setenv("PATH", dir) // where there is no fio
	if got := invoke(t, "bench", "--raw", "fio"); got.status != exitFailed || !strings.Contains(got.stderr, "fio") {
		t.Errorf("without fio: got status %d, %q, want that there is none", got.status, got.stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v), want nothing", left, err)
	}
}

func TestBenchInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, out := canceller(t)
	status := run(ctx, append(quickBench, "--dir", dir), out, out) // ends at its first word, before it writes
	if status != exitInterrupted {
		t.Errorf("got status %d (%s), want 130", status, out.got.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder: %v (%v), want nothing", left, err)
	}
}

func number(v float64) *float64 { return &v }

// sampleBench has a row of each kind.
func sampleBench() *iobench.Result {
	return &iobench.Result{
		RawBytesPerSecond: 2.5e9, Rounds: 6, Engine: "pread (direct)", Direct: true,
		Raw: iobench.RawResult{Reader: "fio 3.33 io_uring, huge pages", BlockBytes: 4 << 20, Depth: 4, CPUSecondsOfGiB: 0.02, Again: 2.4e9, Drift: 0.96,
			Blocks: []iobench.RawBlock{{BlockBytes: 4 << 20, Depth: 4, BytesPerSecond: 2.5e9, LeastBytesPerSecond: 2.2e9, MostBytesPerSecond: 2.6e9, CPUSecondsOfGiB: 0.02}}},
		Rows: []iobench.Row{
			{Name: "batch-8x4MiB", ShareOfRaw: number(0.96), P50: number(13980), P99: number(15500), CPUSecondsOfGiB: number(0.024), AllocsPerOp: number(0),
				ShareLeast: number(0.94), ShareMost: number(0.99), BytesPerSecond: number(2.4e9), ShareOfBest: number(0.96), CPUOverRaw: number(1.2), Ops: 430,
				Note: "p99.9 takes 1000 operations, there were 430: measure for longer"},
			{Name: "mixed-demand", ShareOfRaw: number(0.5), P50: number(512.5), P99: number(900), P999: number(1200), CPUSecondsOfGiB: number(0.05), AllocsPerOp: number(4),
				ShareLeast: number(0.5), ShareMost: number(0.5), BytesPerSecond: number(1.25e9), ShareOfBest: number(0.5), CPUOverRaw: number(2.5), Ops: 1500, P99OverAlone: number(1.1)},
			{Name: "hits", P50: number(0.93), P99: number(1.2), P999: number(31), AllocsPerOp: number(0), Ops: 50000},
			{Name: "writes", Ops: 101930, Writes: &iobench.Writes{Uses: 101930}},
		},
		Copies:   iobench.Copies{Checked: 96},
		Residue:  iobench.Residue{Bytes: new(int64), ReadBytes: 1 << 33, Share: number(0)},
		Warnings: []string{"the first raw arm came to 0.96 times its median"},
	}
}

func TestBenchGolden(t *testing.T) {
	golden(t, "help-bench", succeed(t, "bench", "--help"))
	var text, object bytes.Buffer
	a := &app{stdout: &text}
	if err := a.print(sampleBench(), func(w io.Writer) { writeBench(w, sampleBench()) }); err != nil {
		t.Fatal(err)
	}
	golden(t, "bench", text.String())
	a = &app{stdout: &object, json: true}
	if err := a.print(sampleBench(), nil); err != nil {
		t.Fatal(err)
	}
	golden(t, "bench-json", object.String())
}

// The fields that others read are there under their names, null where they have no
// meaning.
func TestBenchJSONForm(t *testing.T) {
	text, err := json.Marshal(sampleBench())
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Raw  *float64                     `json:"raw_bytes_per_s"`
		Rows []map[string]json.RawMessage `json:"rows"`
	}
	if err := json.Unmarshal(text, &object); err != nil || object.Raw == nil || len(object.Rows) != 4 {
		t.Fatalf("got %s, %v, want raw_bytes_per_s and rows", text, err)
	}
	for _, row := range object.Rows {
		for _, field := range []string{"name", "share_of_raw", "p50_us", "p99_us", "p999_us", "cpu_s_per_gib", "allocs_per_op"} {
			if _, ok := row[field]; !ok {
				t.Errorf("%s: no field %s", row["name"], field)
			}
		}
	}
	if got := string(object.Rows[0]["p999_us"]); got != "null" {
		t.Errorf("p99.9 of too few operations: got %s, want null", got)
	}
}
