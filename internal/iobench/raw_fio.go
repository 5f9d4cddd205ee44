package iobench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// fio is a Raw that has fio read. Its CPU is that of the job alone, since fio takes
// some 0.2 s before it reads.
type fio struct {
	path    string
	version string
}

// NewFio finds out whether fio at path works here. The error is an ErrFio if not.
func NewFio(ctx context.Context, path string) (Raw, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%w: %s --version: %w", ErrFio, path, err)
	}
	version := strings.TrimPrefix(strings.TrimSpace(string(out)), "fio-")
	if version == "" || len(version) > 40 || strings.ContainsAny(version, "\n\r") {
		return nil, fmt.Errorf("%w: %s --version answers %.40q", ErrFio, path, out)
	}
	return &fio{path: path, version: version}, nil
}

// Name tells the version and the ways that make it fast.
func (f *fio) Name() string { return "fio " + f.version + " io_uring, huge pages" }

// Close does nothing.
func (f *fio) Close() error { return nil }

// hugePages has glibc's malloc ask for huge pages, which fio's buffers come from: it
// has no option for them but those that want memory set aside by the administrator.
const hugePages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"

// Read runs one fio with a job for each depth, one after the other.
func (f *fio) Read(ctx context.Context, t *Target, depths []int, d time.Duration) ([]Slice, error) {
	cmd := exec.CommandContext(ctx, f.path, f.arguments(t, depths, d)...)
	cmd.Env = append(os.Environ(), hugePages)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // of a child of fio that holds the pipes
	err := cmd.Run()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("iobench: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %.300s", ErrFio, err, strings.Join(strings.Fields(stderr.String()), " "))
	}
	return parseFio(stdout.Bytes(), len(depths))
}

func (f *fio) arguments(t *Target, depths []int, d time.Duration) []string {
	var files []string
	for _, name := range t.Files {
		files = append(files, strings.NewReplacer(`\`, `\\`, `:`, `\:`).Replace(name))
	}
	args := []string{
		"--output-format=json", "--readonly", "--allow_file_create=0", "--ioengine=io_uring", "--direct=1", "--rw=randread",
		"--norandommap", "--randrepeat=0", "--time_based", "--thinktime=0", "--filename=" + strings.Join(files, ":"),
		"--bs=" + strconv.FormatInt(t.RecordBytes, 10), "--runtime=" + strconv.FormatInt(max(d.Milliseconds(), 1), 10) + "ms",
	}
	for _, depth := range depths {
		args = append(args, "--name=depth-"+strconv.Itoa(depth), "--stonewall", "--iodepth="+strconv.Itoa(depth))
	}
	return args
}

// fioReport is what is read of fio's JSON.
type fioReport struct {
	Jobs []struct {
		Error   int     `json:"error"`
		RunTime float64 `json:"job_runtime"` // ms
		User    float64 `json:"usr_cpu"`     // per cent of it
		System  float64 `json:"sys_cpu"`
		Read    struct {
			Bytes int64 `json:"io_bytes"`
			Ops   int64 `json:"total_ios"`
		} `json:"read"`
	} `json:"jobs"`
}

// parseFio reads fio's answer, before which notes may stand.
func parseFio(out []byte, jobs int) ([]Slice, error) {
	start := bytes.IndexByte(out, '{')
	if start < 0 {
		return nil, fmt.Errorf("%w: no JSON in its answer %.80q", ErrFio, out)
	}
	var report fioReport
	if err := json.NewDecoder(bytes.NewReader(out[start:])).Decode(&report); err != nil {
		return nil, fmt.Errorf("%w: its answer: %w", ErrFio, err)
	}
	if len(report.Jobs) != jobs {
		return nil, fmt.Errorf("%w: it tells of %d jobs, want %d", ErrFio, len(report.Jobs), jobs)
	}
	slices := make([]Slice, jobs)
	for i, job := range report.Jobs {
		const day = 24 * 60 * 60 * 1000 // ms
		switch {
		case job.Error != 0:
			return nil, fmt.Errorf("%w: job %d failed with error %d", ErrFio, i, job.Error)
		case job.Read.Bytes <= 0 || !(job.RunTime > 0 && job.RunTime < day):
			return nil, fmt.Errorf("%w: job %d read %d bytes in %v ms", ErrFio, i, job.Read.Bytes, job.RunTime)
		}
		took := time.Duration(job.RunTime * float64(time.Millisecond))
		share := max(job.User, 0) + max(job.System, 0)
		slices[i] = Slice{Ops: job.Read.Ops, Bytes: job.Read.Bytes, Took: took,
			CPU: time.Duration(math.Min(share/100, 1024) * float64(took))}
	}
	return slices, nil
}

// FindFio is fio from the program's search path, an ErrFio if there is none.
func FindFio(ctx context.Context) (Raw, error) {
	path, err := exec.LookPath("fio")
	if err != nil {
		return nil, errors.Join(ErrFio, err)
	}
	return NewFio(ctx, path)
}
