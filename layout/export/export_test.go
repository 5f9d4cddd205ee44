package export_test

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/internal/synthckpt"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/export"
)

// store copies what made has made.
func store(t testing.TB) *memfs.FS {
	t.Helper()
	made := made(t)
	fsys := memfs.New(memfs.Options{Align: layout.Alignment{Memory: 4096, Offset: 4096}})
	for _, name := range made.Names() {
		if data, err := made.ReadFile(name); err == nil {
			if err := fsys.WriteFile(name, data); err != nil {
				t.Fatal(err)
			}
		}
	}
	return fsys
}

var makeOnce struct {
	sync.Once
	fsys *memfs.FS
}

// made is a checkpoint of large enough experts that records are cut over two lanes,
// and a store of it. It is made once, and only read.
func made(t testing.TB) *memfs.FS {
	t.Helper()
	makeOnce.Do(func() { makeOnce.fsys = makeStore(t) })
	return makeOnce.fsys
}

func makeStore(t testing.TB) *memfs.FS {
	t.Helper()
	fsys := memfs.New(memfs.Options{})
	m, err := synthckpt.Plan(synthckpt.Options{Family: "mixtral", Format: synthckpt.Safetensors, Layers: 2, Experts: 2, TopK: 1, Hidden: 256, FFN: 512})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Write(context.Background(), synthckpt.Target{FS: fsys, Out: "/model"}); err != nil {
		t.Fatal(err)
	}
	cp, err := checkpoint.Read(fsys, "/model")
	if err != nil {
		t.Fatal(err)
	}
	buildStore(t, fsys, "/store", &cp, layout.LaneSpec{}, layout.LaneSpec{})
	return fsys
}

func run(fsys layout.WriteFS, change func(*export.Options)) (*export.Report, error) {
	opts := export.Options{FS: fsys, Store: "/store", Out: "/out"}
	if change != nil {
		change(&opts)
	}
	return export.Export(context.Background(), opts)
}

func TestCutRecordsComeBack(t *testing.T) {
	fsys := store(t)
	var last, total int64
	report, err := run(fsys, func(o *export.Options) {
		o.Progress = func(done, all int64) { last, total = done, all }
		o.Parallel = 3
	})
	if err != nil {
		t.Fatal(err)
	}
	if last != report.Bytes || total != report.Bytes || report.Bytes != 4*3*256*512*2 {
		t.Errorf("got %d of %d at the end and %d reported, want %d", last, total, report.Bytes, 4*3*256*512*2)
	}
	want := readAll(t, fsys, "/model", export.Safetensors)
	for name := range want {
		if !strings.Contains(name, ".experts.") {
			delete(want, name)
		}
	}
	compare(t, readAll(t, fsys, "/out", export.Safetensors), want)
	if _, err := run(fsys, nil); !errors.Is(err, layout.ErrExists) {
		t.Errorf("again: got %v, want ErrExists", err)
	}
}

func TestExportRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(*memfs.FS) error
		change func(*export.Options)
		want   error
		text   string
	}{
		{"other form", nil, func(o *export.Options) { o.Format = export.GGUF }, export.ErrFormat, `not converted to "gguf"`},
		{"folder is there", func(m *memfs.FS) error { return m.Mkdir("/out") }, nil, layout.ErrExists, "another target"},
		{"killed export", func(m *memfs.FS) error { return m.Mkdir("/out.exporting") }, nil, layout.ErrUnfinished, "remove it by hand"},
		{"no such folder", nil, func(o *export.Options) { o.Out = "/none/out" }, fs.ErrNotExist, "/none"},
		{"no store", nil, func(o *export.Options) { o.Store = "/model" }, layout.ErrNotStore, "/model"},
	} {
		fsys := store(t)
		if test.before != nil {
			if err := test.before(fsys); err != nil {
				t.Fatal(err)
			}
		}
		before := fsys.Names()
		_, err := run(fsys, test.change)
		if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v, want %v with %q", test.name, err, test.want, test.text)
		}
		if got := fsys.Names(); !slices.Equal(got, before) {
			t.Errorf("%s: left behind: got %v, want %v", test.name, got, before)
		}
	}
}

// TestOldStoreIsRefused: the first golden store does not know its tensors.
func TestOldStoreIsRefused(t *testing.T) {
	_, err := export.Export(context.Background(), export.Options{Store: "../testdata/golden-v1", Out: t.TempDir() + "/out"})
	if !errors.Is(err, export.ErrNoTensors) || !strings.Contains(err.Error(), "build it again") {
		t.Errorf("got %v, want ErrNoTensors with a remedy", err)
	}
}

func TestFailedExportLeavesNothing(t *testing.T) {
	for _, test := range []struct {
		name string
		rule faultfs.Rule
		want error
		text string
	}{
		{"store fails", faultfs.Rule{Op: faultfs.ReadAt, Name: "lane-1.bin", From: 2, Kind: faultfs.Fail, Err: syscall.EIO}, syscall.EIO, "/store/lane-1.bin"},
		{"store is short", faultfs.Rule{Op: faultfs.ReadAt, Name: "lane-0.bin", From: 2, Kind: faultfs.Short, Bytes: 9}, nil, "unexpected EOF"},
		{"store is damaged", faultfs.Rule{Op: faultfs.ReadAt, Name: "lane-0.bin", From: 2, To: 2, Kind: faultfs.Flip, Bit: 99}, nil, "checksum is"},
		{"disk is full", faultfs.Rule{Op: faultfs.WriteAt, From: 3, Kind: faultfs.Fail, Err: syscall.ENOSPC}, layout.ErrNoSpace, "model.safetensors"},
		{"write is short", faultfs.Rule{Op: faultfs.WriteAt, From: 3, Kind: faultfs.Short, Bytes: 5}, nil, "short write"},
		{"sync fails", faultfs.Rule{Op: faultfs.Sync, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"create fails", faultfs.Rule{Op: faultfs.Create, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
		{"rename fails", faultfs.Rule{Op: faultfs.Rename, Kind: faultfs.Fail}, faultfs.ErrInjected, ""},
	} {
		mem := store(t)
		before := mem.Names()
		fault := faultfs.New(mem, test.rule)
		_, err := run(fault, nil)
		if err == nil || (test.want != nil && !errors.Is(err, test.want)) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: got %v, want %v with %q", test.name, err, test.want, test.text)
		}
		var damage *layout.CorruptError
		if test.rule.Kind == faultfs.Flip && !errors.As(err, &damage) {
			t.Errorf("%s: got %v, want a *CorruptError", test.name, err)
		}
		if got := mem.Names(); !slices.Equal(got, before) {
			t.Errorf("%s: left behind: got %v, want %v", test.name, got, before)
		}
		// One more is opened: a store is asked for copies, and has none.
		if opened, closed := fault.Calls(faultfs.Open)+fault.Calls(faultfs.Create), fault.Calls(faultfs.Close); test.rule.Op != faultfs.Create && opened != closed+1 {
			t.Errorf("%s: got %d files opened and %d closed", test.name, opened, closed)
		}
	}
}

func TestCancelledExportLeavesNothing(t *testing.T) {
	mem := store(t)
	before := mem.Names()
	ctx, cancel := context.WithCancel(context.Background())
	_, err := export.Export(ctx, export.Options{FS: mem, Store: "/store", Out: "/out", Progress: func(done, total int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if got := mem.Names(); !slices.Equal(got, before) {
		t.Errorf("left behind: got %v, want %v", got, before)
	}
}
