package iobench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const fioAnswer = `fio: a note before
{"fio version":"fio-3.33","jobs":[
 {"jobname":"depth-2","error":0,"job_runtime":500,"usr_cpu":1.5,"sys_cpu":8.5,"read":{"io_bytes":1073741824,"total_ios":1024}},
 {"jobname":"depth-4","error":0,"job_runtime":250,"usr_cpu":0,"sys_cpu":20,"read":{"io_bytes":2097152,"total_ios":2}}]}`

func TestParseFio(t *testing.T) {
	got, err := parseFio([]byte(fioAnswer), 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []Slice{
		{Ops: 1024, Bytes: 1 << 30, Took: 500 * time.Millisecond, CPU: 50 * time.Millisecond},
		{Ops: 2, Bytes: 2 << 20, Took: 250 * time.Millisecond, CPU: 50 * time.Millisecond},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if rate := got[0].BytesPerSecond(); rate != 2<<30 {
		t.Errorf("got %v bytes a second, want 2 GiB", rate)
	}
	if cpu := got[0].CPUSecondsPerGiB(); !near(cpu, 0.05, 1e-9) {
		t.Errorf("got %v CPU s/GiB, want 0.05", cpu)
	}
}

func TestDamagedFioAnswers(t *testing.T) {
	for name, c := range map[string]struct{ old, instead, word string }{
		"no JSON":       {fioAnswer, "fio: engine io_uring not loadable", "no JSON"},
		"empty":         {fioAnswer, "", "no JSON"},
		"cut":           {`"total_ios":2}}]}`, "", "its answer"},
		"other numbers": {`"io_bytes":1073741824`, `"io_bytes":"many"`, "its answer"},
		"missing job":   {",\n {\"jobname\":\"depth-4\"", `],"other":[{"jobname":"depth-4"`, "1 jobs, want 2"},
		"failed job":    {`"error":0,"job_runtime":250`, `"error":22,"job_runtime":250`, "error 22"},
		"no bytes":      {`"io_bytes":2097152`, `"io_bytes":0`, "read 0 bytes"},
		"no time":       {`"job_runtime":250`, `"job_runtime":0`, "in 0 ms"},
		"absurd time":   {`"job_runtime":250`, `"job_runtime":1e300`, "in 1e+300 ms"},
	} {
		_, err := parseFio([]byte(strings.Replace(fioAnswer, c.old, c.instead, 1)), 2)
		if !errors.Is(err, ErrFio) || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: got %v, want an ErrFio that says %q", name, err, c.word)
		}
	}
}

func FuzzParseFio(f *testing.F) {
	f.Add([]byte(fioAnswer))
	f.Add([]byte(`{"jobs":[{},{"read":{}}]}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		slices, err := parseFio(answer, 2)
		if err != nil {
			return
		}
		for _, s := range slices {
			if s.Bytes <= 0 || s.Took < 0 || s.CPU < 0 {
				t.Errorf("got %+v, want bytes, and no negative time", s)
			}
		}
	})
}

func TestFioArguments(t *testing.T) {
	f := &fio{}
	target := &Target{Batch: Batch{8, 4 << 20}, Files: []string{"/a:b/lane-0.bin", "/c/lane-1.bin"}}
	got := strings.Join(f.arguments(target, []int{2, 32}, 250*time.Millisecond), " ")
	for _, want := range []string{
		"--readonly", "--direct=1", "--ioengine=io_uring", "--rw=randread", "--bs=4194304", "--runtime=250ms", `--filename=/a\:b/lane-0.bin:/c/lane-1.bin`,
		"--name=depth-2 --stonewall --iodepth=2 --name=depth-32 --stonewall --iodepth=32",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// fakeFio is a program that answers as told.
func fakeFio(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fio")
	text := "#!/bin/sh\nif [ \"$1\" = --version ]; then echo fio-9.1; exit 0; fi\n" + script
	if err := os.WriteFile(path, []byte(text), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := NewFio(t.Context(), path); err != nil {
		t.Skipf("no programs can be run here: %v", err)
	}
	return path
}

func TestFioRuns(t *testing.T) {
	// It answers only if it was given huge pages.
	path := fakeFio(t, fmt.Sprintf("case \"$GLIBC_TUNABLES\" in *hugetlb=1) ;; *) exit 3;; esac\ncat <<'X'\n%s\nX\n", fioAnswer))
	raw, err := NewFio(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if got := raw.Name(); got != "fio 9.1 io_uring, huge pages" {
		t.Errorf("got name %q", got)
	}
	got, err := raw.Read(t.Context(), &Target{}, []int{2, 4}, time.Second)
	if err != nil || len(got) != 2 || got[1].Ops != 2 {
		t.Errorf("got %+v, %v, want two slices", got, err)
	}
}

func TestFioFails(t *testing.T) {
	raw, err := NewFio(t.Context(), fakeFio(t, "echo no such engine >&2\nexit 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Read(t.Context(), &Target{}, []int{2}, time.Second); !errors.Is(err, ErrFio) || !strings.Contains(err.Error(), "no such engine") {
		t.Errorf("got %v, want an ErrFio with its words", err)
	}
	if _, err := NewFio(t.Context(), filepath.Join(t.TempDir(), "missing")); !errors.Is(err, ErrFio) {
		t.Errorf("missing: got %v, want an ErrFio", err)
	}
}

// A fio under way ends with the context.
func TestContextEndsFio(t *testing.T) {
	raw, err := NewFio(t.Context(), fakeFio(t, "exec sleep 60\n"))
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	if _, err := raw.Read(ctx, &Target{}, []int{2}, time.Minute); !errors.Is(err, cause) {
		t.Errorf("got %v, want %v", err, cause)
	}
}

// The real one, where it is installed.
func TestRealFio(t *testing.T) {
	raw, err := FindFio(t.Context())
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, make([]byte, 4<<20), 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := raw.Read(t.Context(), &Target{Batch: Batch{1, 64 << 10}, Files: []string{path}}, []int{2, 4}, 20*time.Millisecond)
	if err != nil {
		t.Skipf("fio does not work here: %v", err) // no io_uring, or no direct reads
	}
	for _, s := range got {
		if s.Bytes != s.Ops*64<<10 || s.BytesPerSecond() <= 0 {
			t.Errorf("got %+v, want blocks of 64 KiB", s)
		}
	}
}
