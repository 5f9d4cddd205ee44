package dummystore_test

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"outrider/internal/dummystore"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/checkpoint"
)

func options(fsys layout.WriteFS, recordBytes int64) dummystore.Options {
	return dummystore.Options{Shape: layout.Shape{Layers: 3, Experts: 5, TopK: 2}, RecordBytes: recordBytes, FS: fsys, Dir: "s"}
}

// tensors reads all tensor bytes of an expert.
func tensors(t *testing.T, src layout.Source, id layout.ExpertID) []byte {
	t.Helper()
	var p layout.Placement
	if err := src.Locate(id, &p); err != nil {
		t.Fatal(err)
	}
	slot := make([]byte, p.Bytes)
	for _, r := range p.Reads {
		if n, err := src.Lanes()[r.Lane].File.ReadAt(slot[r.At:r.At+r.Bytes], r.Offset); int64(n) < r.Need {
			t.Fatalf("%v: got %d bytes %v, want %d", id, n, err, r.Need)
		}
	}
	var out []byte
	for _, part := range p.Parts {
		out = append(out, slot[part.At:part.At+part.Bytes]...)
	}
	return out
}

func TestBuildMakesARealStore(t *testing.T) {
	for _, recordBytes := range []int64{1, 2, 7, 4096, 50_000, 1_500_007} {
		fsys := memfs.New(memfs.Options{})
		o := options(fsys, recordBytes)
		report, err := dummystore.Build(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if report.Records != 15 || report.DataBytes != 15*recordBytes {
			t.Errorf("%d bytes: got %d records of %d bytes in all, want 15 of %d", recordBytes, report.Records, report.DataBytes, 15*recordBytes)
		}
		found, err := layout.Verify(t.Context(), layout.VerifyOptions{FS: fsys, Dir: "s"})
		if err != nil || !found.OK() {
			t.Errorf("%d bytes: verify: got %+v %v, want no damage", recordBytes, found, err)
		}
		m, err := checkpoint.Open(fsys, "s", layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		if m.Architecture != dummystore.Architecture || m.Format != dummystore.Format || !m.Source.Shape().Equal(o.Shape) {
			t.Errorf("%d bytes: got %+v, want a model that says it is a dummy", recordBytes, m)
		}
		if got := tensors(t, m.Source, layout.ExpertID{Layer: 2, Index: 4}); int64(len(got)) != recordBytes {
			t.Errorf("%d bytes: an expert has %d", recordBytes, len(got))
		}
		if err := m.Source.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestContentIsIncompressibleDifferentAndTheSameAgain(t *testing.T) {
	var all [2][]byte
	for i := range all {
		fsys := memfs.New(memfs.Options{})
		if _, err := dummystore.Build(t.Context(), options(fsys, 30_000)); err != nil {
			t.Fatal(err)
		}
		store, err := layout.OpenStore(fsys, "s", layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for o := range store.Shape().Count() {
			b := tensors(t, store, store.Shape().ID(o))
			if seen[string(b)] {
				t.Errorf("%v: its bytes are another expert's", store.Shape().ID(o))
			}
			seen[string(b)] = true
			all[i] = append(all[i], b...)
		}
		store.Close()
	}
	if !bytes.Equal(all[0], all[1]) {
		t.Error("two builds of the same options: got other bytes, want the same")
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(all[0])
	w.Close()
	if packed.Len() < len(all[0])*99/100 {
		t.Errorf("%d bytes compress to %d, want no gain", len(all[0]), packed.Len())
	}
}

func TestPaddingStaysSmall(t *testing.T) {
	for _, recordBytes := range []int64{120_000, 1 << 20, 13_271_040} {
		plan, err := dummystore.Plan(options(nil, recordBytes))
		if err != nil {
			t.Fatal(err)
		}
		if plan.PaddingBytes*100 > plan.DataBytes {
			t.Errorf("records of %d bytes: got %d bytes of padding on %d, want at most 1 %%", recordBytes, plan.PaddingBytes, plan.DataBytes)
		}
	}
}

func TestLanesAndProgress(t *testing.T) {
	fsys := memfs.New(memfs.Options{})
	o := options(fsys, 1<<20)
	o.Lanes = []layout.LaneSpec{{}, {Weight: 2}}
	last := make(chan int64, 1<<16)
	o.Progress = func(done, total int64) {
		if done == total {
			last <- total
		}
	}
	if _, err := dummystore.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if len(last) != 1 {
		t.Errorf("progress reached its end %d times, want once", len(last))
	}
	store, err := layout.OpenStore(fsys, "s", layout.Buffered)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if got := len(store.Lanes()); got != 2 {
		t.Errorf("got %d lanes, want 2", got)
	}
}

func TestBuildFailsWithoutARest(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	tests := []struct {
		name string
		ctx  context.Context
		fsys *memfs.FS
		edit func(*dummystore.Options)
		want error
	}{
		{"no space", t.Context(), memfs.New(memfs.Options{Limit: 400_000}), nil, layout.ErrNoSpace},
		{"stopped", stopped, memfs.New(memfs.Options{}), nil, context.Canceled},
		{"no shape", t.Context(), memfs.New(memfs.Options{}), func(o *dummystore.Options) { o.Shape = layout.Shape{} }, layout.ErrCheckpoint},
		{"no bytes", t.Context(), memfs.New(memfs.Options{}), func(o *dummystore.Options) { o.RecordBytes = 0 }, layout.ErrCheckpoint},
		{"negative", t.Context(), memfs.New(memfs.Options{}), func(o *dummystore.Options) { o.RecordBytes = -1 }, layout.ErrCheckpoint},
		{"record too large", t.Context(), memfs.New(memfs.Options{}), func(o *dummystore.Options) { o.RecordBytes = 1 << 60 }, layout.ErrCheckpoint},
		{"too large in all", t.Context(), memfs.New(memfs.Options{}), func(o *dummystore.Options) {
			o.Shape, o.RecordBytes = layout.Shape{Layers: 4096, Experts: 4096, TopK: 1}, 1<<35
		}, layout.ErrPlan},
		{"bad lane", t.Context(), memfs.New(memfs.Options{}), func(o *dummystore.Options) { o.Lanes = []layout.LaneSpec{{Path: "a/b"}} }, layout.ErrPlan},
	}
	for _, tt := range tests {
		o := options(tt.fsys, 30_000)
		if tt.edit != nil {
			tt.edit(&o)
		}
		if _, err := dummystore.Build(tt.ctx, o); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		for _, name := range []string{"s", "s.building"} {
			if _, err := tt.fsys.Stat(name); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s: got %v, want nothing left", tt.name, name, err)
			}
		}
	}
}

func TestBuildOnTheSystem(t *testing.T) {
	o := options(nil, 100_000)
	o.Dir = filepath.Join(t.TempDir(), "dummy.outrider")
	if _, err := dummystore.Build(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	found, err := layout.Verify(t.Context(), layout.VerifyOptions{Dir: o.Dir})
	if err != nil || !found.OK() {
		t.Errorf("verify: got %+v %v, want no damage", found, err)
	}
	if _, err := dummystore.Build(t.Context(), o); !errors.Is(err, layout.ErrExists) {
		t.Errorf("second build: got %v, want %v", err, layout.ErrExists)
	}
}
