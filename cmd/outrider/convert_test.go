package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/internal/testfiles"
	"outrider/trace"
)

// tokensOf reads a trace file of ours.
func tokensOf(t *testing.T, path string) *trace.Trace {
	t.Helper()
	f, err := trace.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tr, err := trace.ReadAll(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestConvertKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	want := tokensOf(t, otherTrace)
	from := otherTrace
	// From form to form and back: nothing may be lost on the way.
	for _, name := range []string{"a.trace", "b.jsonl", "c.trace.zst", "d.jsonl.gz"} {
		out := filepath.Join(dir, name)
		c := decode[conversion](t, "trace", "convert", from, "-o", out)
		if c.Tokens != 300 || !c.Complete || c.Histogram {
			t.Errorf("%s: got %+v, want all 300 tokens", name, c)
		}
		got := tokensOf(t, out)
		if got.Len() != want.Len() || got.Header.Model != want.Header.Model || got.Header.Weights != want.Header.Weights {
			t.Fatalf("%s: got %d tokens, header %+v, want %d and %+v", name, got.Len(), got.Header, want.Len(), want.Header)
		}
		for i := range want.Experts {
			if got.Experts[i] != want.Experts[i] || got.Weights[i] != want.Weights[i] {
				t.Fatalf("%s: entry %d: got %d, %v, want %d, %v", name, i, got.Experts[i], got.Weights[i], want.Experts[i], want.Weights[i])
			}
		}
		from = out
	}
	if got := invoke(t, "trace", "convert", otherTrace, "-o", from); got.status != exitInput {
		t.Errorf("over a file that is there: got status %d, want 3", got.status)
	}
}

func TestConvertSavesWhatIsBeforeTheDamage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "saved.trace")
	got := invoke(t, "trace", "convert", tornTrace(t), "-o", out)
	if got.status != exitInput || !strings.Contains(got.stdout, "5 tokens") || !strings.Contains(got.stderr, "before its end mark") {
		t.Errorf("got status %d, %q, %q, want 3, 5 tokens and that the trace is torn", got.status, got.stdout, got.stderr)
	}
	if n := tokensOf(t, out).Len(); n != 5 {
		t.Errorf("saved: got %d tokens, want 5", n)
	}
}

func TestSynth(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"uniform", "zipf", "markov", "domains"} {
		a, b := filepath.Join(dir, kind+"-a.trace"), filepath.Join(dir, kind+"-b.trace")
		for _, out := range []string{a, b} {
			s := decode[synthesis](t, "trace", "synth", kind, "-o", out, "--tokens", "2000", "--layers", "4", "--experts", "16", "--top-k", "2", "--seed", "7")
			if s.Tokens != 2000 || !strings.Contains(s.Source, "seed 7") {
				t.Errorf("%s: got %+v, want 2000 tokens of seed 7", kind, s)
			}
		}
		x, err := os.ReadFile(a)
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(b)
		if err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s: the same seed gave two traces", kind)
		}
		info := decode[traceSummary](t, "trace", "info", a)
		if info.Uniform != (kind == "uniform") || len(info.Warnings) > 0 {
			t.Errorf("%s: got uniform %v and warnings %v, want %v and none", kind, info.Uniform, info.Warnings, kind == "uniform")
		}
	}
	for _, args := range [][]string{{"markov"}, {"gauss", "-o", filepath.Join(dir, "x")}, {"zipf", "-o", filepath.Join(dir, "x"), "--top-k", "99"}} {
		if got := invoke(t, append([]string{"trace", "synth"}, args...)...); got.status != exitUsage {
			t.Errorf("trace synth %v: got status %d (%s), want 2", args, got.status, got.stderr)
		}
	}
}

// companions and severalModels: see the test of package importer.
var (
	companions    = map[string]bool{"prompt-spans.json": true}
	severalModels = map[string][]string{"counts.json.gz": {"--model", "olmoe"}}
)

// TestEveryFileOfTheCollection runs every command on every file of the collection
// of traces beside the repository.
func TestEveryFileOfTheCollection(t *testing.T) {
	root := testfiles.Shared(t, "traces")
	if testing.Short() {
		t.Skip("reads some 70 files several times")
	}
	dir := t.TempDir()
	traces := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, ".md") || companions[d.Name()] {
			return err
		}
		more := severalModels[d.Name()]
		out := filepath.Join(dir, d.Name()+".trace")
		c := decode[conversion](t, append([]string{"trace", "convert", path, "-o", out, "--max-tokens", "300"}, more...)...)
		defer os.Remove(out)
		succeed(t, append([]string{"trace", "info", path, "--max-tokens", "300"}, more...)...)
		if c.Histogram {
			for _, command := range []string{"simulate", "replay"} {
				if got := invoke(t, append([]string{command, path}, more...)...); got.status != exitInput || !strings.Contains(got.stderr, "no order") {
					t.Errorf("%s %s: got status %d, %q, want 3 and that a histogram has no order", command, path, got.status, got.stderr)
				}
			}
			return nil
		}
		traces++
		if c.Tokens == 0 || c.Tokens > 300 {
			t.Errorf("%s: got %d tokens, want up to 300", path, c.Tokens)
		}
		s := decode[simulation](t, "simulate", path, "--max-tokens", "100", "--cache", "50%", "--runs", "lru,online+spec,optimum")
		if lru, best := s.Cells[0], s.Cells[2]; best.Hits < lru.Hits {
			t.Errorf("%s: got %v hits of the optimum and %v of lru", path, best.Hits, lru.Hits)
		}
		r := decode[replayed](t, "replay", path, "--max-tokens", "5", "--compute", "10us", "--rounds", "1", "--budget", "50%", "--record", "4KiB", "--runs", "lru,online+spec", "--dir", dir)
		if len(r.Cells) != 3 || r.Cells[0].StallOverCompute <= 0 {
			t.Errorf("%s: got %+v, want three arms played", path, r.Cells)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if traces < 12 {
		t.Errorf("got %d traces among the files, want 12 or more", traces)
	}
}

// endless never ends; limited tests that copyTrace does.
type endless struct{ header trace.Header }

func (e endless) Header() trace.Header { return e.header }

func (e endless) Next(a *trace.Activation) error {
	*a = trace.Activation{Token: -1, Experts: []int32{0}}
	return nil
}

type brokenSink struct{ trace.Sink }

func (brokenSink) Append(*trace.Activation) error { return fs.ErrPermission }

func TestCopyTraceEnds(t *testing.T) {
	ctx, out := canceller(t)
	n, err := copyTrace(ctx, discard{}, endless{}, 10, func(int64) {})
	if n != 10 || err != nil {
		t.Errorf("limit: got %d, %v, want 10", n, err)
	}
	var failed *sinkError
	if _, err := copyTrace(ctx, brokenSink{}, endless{}, 0, func(int64) {}); !errors.As(err, &failed) || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a sink that fails: got %v, want a sinkError", err)
	}
	out.cancel()
	if _, err := copyTrace(ctx, discard{}, endless{}, 0, func(int64) {}); !errors.Is(err, ctx.Err()) {
		t.Errorf("cancelled: got %v, want the context's error", err)
	}
	if _, err := copyTrace(t.Context(), discard{}, ended0{}, 0, func(int64) {}); !errors.Is(err, io.EOF) {
		t.Errorf("the stream's end: got %v, want io.EOF", err)
	}
}

type discard struct{ trace.Sink }

func (discard) Append(*trace.Activation) error { return nil }

type ended0 struct{ trace.Stream }

func (ended0) Next(*trace.Activation) error { return io.EOF }
