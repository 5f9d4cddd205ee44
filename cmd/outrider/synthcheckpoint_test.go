package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What synth checkpoint makes is built and verified by the program itself.
func TestSynthCheckpoint(t *testing.T) {
	for _, c := range []struct {
		family, format, out string
		shards              string
		files               int
		opens               string
	}{
		{"qwen2-moe", "gguf", "m.gguf", "1", 1, "m.gguf"},
		{"gpt-oss", "gguf", "m.gguf", "2", 2, "m-00001-of-00002.gguf"},
		{"gpt-oss", "safetensors", "m", "3", 5, "m"},
	} {
		dir := t.TempDir()
		out := filepath.Join(dir, c.out)
		made := decode[synthCheckpoint](t, "synth", "checkpoint", "--family", c.family, "--format", c.format, "--out", out,
			"--layers", "3", "--experts", "6", "--top-k", "3", "--shards", c.shards, "--seed", "5")
		if made.Name != c.family || made.Format != c.format || made.Layers != 3 || made.Experts != 6 || made.TopK != 3 || len(made.Files) != c.files ||
			made.RoutedBytes < 1 || made.RoutedBytes >= made.Bytes {
			t.Errorf("%s as %s: got %+v", c.family, c.format, made)
		}
		source, store := filepath.Join(dir, c.opens), filepath.Join(dir, "s.outrider")
		succeed(t, "layout", "build", source, "--out", store)
		succeed(t, "layout", "verify", store, "--source", source)
	}
}

// Without a format GGUF is made, where the family has it.
func TestSynthCheckpointFormat(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m.gguf")
	if made := decode[synthCheckpoint](t, "synth", "checkpoint", "--family", "mixtral", "--out", out); made.Format != "gguf" || made.Seed != 1 {
		t.Errorf("got %+v, want a GGUF of seed 1", made)
	}
	out = filepath.Join(t.TempDir(), "m")
	if made := decode[synthCheckpoint](t, "synth", "checkpoint", "--family", "qwen3-moe-fp8", "--out", out); made.Format != "safetensors" {
		t.Errorf("got %+v, want safetensors", made)
	}
	if text := succeed(t, "synth", "checkpoint", "--family", "mixtral", "--out", filepath.Join(t.TempDir(), "x.gguf")); !strings.Contains(text, "4 MoE layers of 8 experts, top 2") {
		t.Errorf("got %q, want a line that tells the shape", text)
	}
}

// Without --out what is made lies in the working folder, under a name that tells it.
func TestSynthNamesWhatItMakes(t *testing.T) {
	model, err := filepath.Abs(modelFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, c := range []struct {
		want string
		args []string
	}{
		{"mixtral-3.gguf", []string{"checkpoint", "--family", "mixtral", "--seed", "3"}},
		{"qwen3-moe-fp8-1", []string{"checkpoint", "--family", "qwen3-moe-fp8"}},
		{"tinymoe-q8_0-wide-2x1.gguf", []string{"widen", model, "--width", "2", "--ffn", "1"}},
	} {
		succeed(t, append([]string{"synth"}, c.args...)...)
		succeed(t, "layout", "inspect", c.want)
	}
}

func TestSynthCheckpointErrors(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.gguf")
	if err := os.WriteFile(there, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"no family", []string{"--out", there}, exitUsage, "--family"},
		{"unknown family", []string{"--family", "x", "--out", there}, exitUsage, `family "x" is not known`},
		{"format it has not", []string{"--family", "qwen3-moe-fp8", "--format", "gguf", "--out", there}, exitUsage, "is not known"},
		{"experts", []string{"--family", "mixtral", "--experts", "1", "--out", there}, exitUsage, "1 experts, want 2"},
		{"shards", []string{"--family", "mixtral", "--shards", "0", "--out", there}, exitUsage, "--shards 0"},
		{"suffix", []string{"--family", "mixtral", "--out", filepath.Join(dir, "m")}, exitUsage, "ends in .gguf"},
		{"it exists", []string{"--family", "mixtral", "--out", there}, exitInput, "file exists"},
		{"no folder", []string{"--family", "mixtral", "--out", filepath.Join(dir, "no", "m.gguf")}, exitInput, "no such file"},
	} {
		got := invoke(t, append([]string{"synth", "checkpoint"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.says) {
			t.Errorf("%s: got status %d and %q, want %d with %q", c.name, got.status, got.stderr, c.status, c.says)
		}
	}
	if b, err := os.ReadFile(there); err != nil || string(b) != "mine" {
		t.Errorf("the file that was there: got %q, %v", b, err)
	}
}

func TestSynthFamilies(t *testing.T) {
	list := decode[familyList](t, "synth", "families")
	if len(list.Families) < 100 {
		t.Errorf("got %d forms of families, want those of docs/checkpoints.md", len(list.Families))
	}
	if text := succeed(t, "synth", "families"); !strings.Contains(text, "deepseek-v3-fp8  ") {
		t.Errorf("got %q, want a table with deepseek-v3-fp8", text)
	}
}
