package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// newCheckpoint makes a small safetensors checkpoint of a family, in three files.
func newCheckpoint(t *testing.T, family string, flags ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "m")
	succeed(t, append([]string{"synth", "checkpoint", "--family", family, "--format", "safetensors", "--shards", "3", "--out", dir}, flags...)...)
	return dir
}

// A folder, an index and a shard name the same model.
func TestInspectSafetensors(t *testing.T) {
	dir := newCheckpoint(t, "gpt-oss")
	unchanged(t, func() {
		golden(t, "inspect-safetensors", settle(succeed(t, "layout", "inspect", dir, "--tensors"), filepath.Dir(dir)))
		want := decode[inspection](t, "layout", "inspect", dir)
		if want.Kind != "checkpoint" || want.Format != "safetensors" || want.Family == "" || len(want.Resident) == 0 || len(want.Lanes) != 3 {
			t.Errorf("got %+v, want a safetensors checkpoint of three files, its family and what stays resident", want)
		}
		var resident int64
		for _, g := range want.Resident {
			if !g.LeftOut {
				resident += g.Bytes
			}
		}
		if resident != want.RestBytes {
			t.Errorf("got groups of %d bytes that stay resident, want all of the rest, %d", resident, want.RestBytes)
		}
		for _, name := range []string{"model.safetensors.index.json", "model-00002-of-00003.safetensors"} {
			if got := decode[inspection](t, "layout", "inspect", filepath.Join(dir, name)); got.ExpertBytes != want.ExpertBytes || got.Layers != want.Layers {
				t.Errorf("%s: got %d bytes in %d layers, want those of the folder, %d in %d", name, got.ExpertBytes, got.Layers, want.ExpertBytes, want.Layers)
			}
		}
	}, dir)
}

func TestBuildOfSafetensors(t *testing.T) {
	dir := newCheckpoint(t, "deepseek-v3-fp8")
	store := filepath.Join(t.TempDir(), "s.outrider")
	unchanged(t, func() {
		built := decode[buildSummary](t, "layout", "build", dir, "--out", store)
		if built.BytesIn == 0 || built.BytesIn != built.BytesOut {
			t.Errorf("got %d bytes in and %d out, want the same", built.BytesIn, built.BytesOut)
		}
		checked := decode[verifySummary](t, "layout", "verify", store, "--source", filepath.Join(dir, "model-00002-of-00003.safetensors"))
		if !checked.OK || !checked.Compared {
			t.Errorf("got %+v, want all bytes compared and right", checked)
		}
	}, dir)
}

// Prediction blocks are layers only if asked for, and the store has them then.
func TestBuildWithPredictionBlocks(t *testing.T) {
	dir := newCheckpoint(t, "deepseek-v3-fp8")
	store := filepath.Join(t.TempDir(), "s.outrider")
	plain, all := decode[inspection](t, "layout", "inspect", dir), decode[inspection](t, "layout", "inspect", dir, "--predict")
	if all.Layers != plain.Layers+1 {
		t.Fatalf("got %d layers with --predict and %d without, want one more", all.Layers, plain.Layers)
	}
	succeed(t, "layout", "build", dir, "--out", store, "--predict")
	if got := decode[inspection](t, "layout", "inspect", store); got.Layers != all.Layers {
		t.Errorf("got a store of %d layers, want %d", got.Layers, all.Layers)
	}
	if got := invoke(t, "layout", "verify", store, "--source", dir); got.status != exitInput {
		t.Errorf("verified without --predict: got status %d (%s), want 3 since the shapes differ", got.status, got.stderr)
	}
	if checked := decode[verifySummary](t, "layout", "verify", store, "--source", dir, "--predict"); !checked.OK {
		t.Errorf("got %+v, want a right store", checked)
	}
}

// Real reads need no format; the reference runner needs GGUF, and says so.
func TestInPlaceSafetensors(t *testing.T) {
	dir := newCheckpoint(t, "qwen3-moe", "--layers", "3", "--experts", "8", "--top-k", "2")
	recorded := filepath.Join(t.TempDir(), "t.jsonl")
	succeed(t, "trace", "synth", "markov", "--layers", "3", "--experts", "8", "--top-k", "2", "--tokens", "50", "--sequences", "1", "--out", recorded)
	if got := invoke(t, "replay", recorded, dir, "--runs", "lru", "--budget", "50%", "--compute", "50us", "--rounds", "1", "--json"); got.status != exitDone {
		t.Errorf("replay: got status %d (%s), want real reads in place", got.status, got.stderr)
	}
	store := filepath.Join(t.TempDir(), "s.outrider")
	succeed(t, "layout", "build", dir, "--out", store)
	for _, path := range []string{dir, store} {
		got := invoke(t, "run", path, "--prompt", "x")
		if got.status != exitInput || !strings.Contains(got.stderr, "reads GGUF only") {
			t.Errorf("run %s: got status %d and %q, want 3 and that it needs GGUF", path, got.status, got.stderr)
		}
	}
}

// A store names the tensors as its checkpoint does.
func TestStoresTensors(t *testing.T) {
	dir := newCheckpoint(t, "qwen3-moe")
	store := filepath.Join(t.TempDir(), "s.outrider")
	succeed(t, "layout", "build", dir, "--out", store)
	names := func(path string) (out []string) {
		for _, x := range decode[inspection](t, "layout", "inspect", path, "--tensors").Tensors {
			if !strings.Contains(x.What, "router") {
				out = append(out, x.Tensor)
			}
		}
		return out
	}
	if got, want := strings.Join(names(store), "\n"), strings.Join(names(dir), "\n"); got != want || !strings.Contains(got, "experts.{expert}.gate_proj.weight") {
		t.Errorf("got\n%s\nwant the checkpoint's\n%s", got, want)
	}
	old := invoke(t, "layout", "inspect", "../../layout/testdata/golden-v1", "--tensors")
	if old.status != exitInput || !strings.Contains(old.stderr, "older builder") {
		t.Errorf("got status %d and %q for a store that does not name them, want 3", old.status, old.stderr)
	}
}
