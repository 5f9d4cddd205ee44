package trace

import (
	"path/filepath"
	"testing"

	"outrider/internal/testfiles"
)

type realTrace struct {
	file              string
	tokens, sequences int64
	cycle             int
	phase             Phase
	weights, ids      bool
}

func checkReal(t *testing.T, dir string, want realTrace) {
	t.Helper()
	f, err := OpenFile(filepath.Join(dir, want.file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Collect(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	got := realTrace{want.file, s.Tokens, s.Sequences, s.MaxCycle, f.Header().Phase, f.Header().Weights, f.Header().Tokens}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s.Uniform {
		t.Error("got uniform, want a real trace not to be")
	}
}

func TestRepositoryTraces(t *testing.T) {
	dir := filepath.Join(testfiles.Root(t), "testdata", "traces")
	for _, want := range []realTrace{
		{"gpt-oss-20b-300.jsonl.gz", 300, 1, 96, Decode, true, false},
		{"tinymoe-2000.jsonl.gz", 2048, 8, 32, PhaseUnknown, true, true},
	} {
		t.Run(want.file, func(t *testing.T) { checkReal(t, dir, want) })
	}
}

func TestSharedTraces(t *testing.T) {
	dir := testfiles.Shared(t, "")
	for _, want := range []realTrace{
		{"traces/gpt-oss-20b.jsonl.gz", 20881, 60, 96, Decode, true, false},
		{"traces/deepseek-v2-lite-chat.jsonl.gz", 30387, 250, 156, Prefill, false, false},
		{"traces/mixtral-8x7b-instruct.jsonl.gz", 577, 4, 64, Decode, true, false},
		{"traces/qwen1.5-moe-a2.7b-chat-4layers-batch25.jsonl.gz", 2116, 25, 16, PhaseUnknown, true, false},
		{"traces/switch-base-8-encoder.jsonl.gz", 215, 10, 6, Prefill, false, false},
		{"tinymoe/traces-small.jsonl.gz", 3072, 12, 32, PhaseUnknown, true, true},
	} {
		t.Run(want.file, func(t *testing.T) { checkReal(t, dir, want) })
	}
}
