package export_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/synthckpt"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/export"
	"outrider/layout/gguf"
	"outrider/layout/safetensors"
)

// content is a tensor of a checkpoint's files.
type content struct {
	typ  string
	dims []int64 // as the format lists them
	data []byte
}

// readAll reads all tensors of a checkpoint, by name and, where a name comes twice, by
// part too.
func readAll(t testing.TB, fsys layout.FS, path, format string) map[string]content {
	t.Helper()
	out := map[string]content{}
	add := func(name, file, typ string, dims []int64, offset, size int64) {
		f, err := fsys.Open(file, layout.Buffered)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		data := make([]byte, size)
		if n, err := f.ReadAt(data, offset); int64(n) < size && err != io.EOF {
			t.Fatal(err)
		}
		if _, twice := out[name]; twice {
			t.Fatalf("%s: tensor %s comes twice", path, name)
		}
		out[name] = content{typ, dims, data}
	}
	if format == export.GGUF {
		file, err := gguf.Open(fsys, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, ts := range file.Tensors() {
			add(ts.Name, file.Shards()[ts.Shard].Path, ts.TypeName(), ts.Dims, ts.Offset, ts.Bytes)
		}
		return out
	}
	set, err := safetensors.OpenSet(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, ts := range set.Tensors() {
		name := ts.Name
		if ts.Part > 0 {
			name += fmt.Sprintf(" part %d", ts.Part)
		}
		add(name, set.Shards()[ts.Shard].Path, ts.DType, ts.Shape, ts.Offset, ts.Bytes)
	}
	return out
}

// TestEveryFamilyComesBack: checkpoint, store, export: each expert tensor of each form
// of each family has its name, type, dimensions and bytes again, in one file and in
// several, and nothing is missing or added.
func TestEveryFamilyComesBack(t *testing.T) {
	families, err := synthckpt.Families()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range families {
		for _, shards := range []int{1, 3} {
			if shards > 1 && i%4 != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s-%s-%d", f.Name, f.Format, shards), func(t *testing.T) {
				m, err := synthckpt.Plan(synthckpt.Options{Family: f.Name, Format: f.Format, Layers: 2, Experts: 4})
				if err != nil {
					t.Fatal(err)
				}
				comesBack(t, m, shards)
			})
		}
	}
}

func comesBack(t *testing.T, m *synthckpt.Model, shards int) {
	fsys := memfs.New(memfs.Options{Align: layout.Alignment{Memory: 512, Offset: 512}})
	path := "/model.gguf"
	if m.Format == synthckpt.Safetensors {
		path = "/model"
	}
	written, err := m.Write(context.Background(), synthckpt.Target{FS: fsys, Out: path, Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	if m.Format == synthckpt.GGUF {
		path = written.Files[0]
	}
	cp, err := checkpoint.Read(fsys, path)
	if err != nil {
		t.Fatal(err)
	}
	buildStore(t, fsys, "/store", &cp)
	opts := export.Options{FS: fsys, Store: "/store", Out: "/out"}
	if shards > 1 {
		opts.ShardBytes = m.RoutedBytes() / 3
	}
	report, err := export.Export(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if shards > 1 && len(report.Files) < 2 {
		t.Errorf("got files %v, want several", report.Files)
	}
	want := readAll(t, fsys, path, m.Format)
	for _, ts := range m.Tensors { // what is not laid out does not come back
		if !ts.Routed || ts.Predict {
			delete(want, ts.Name)
		}
	}
	got := readAll(t, fsys, "/out", m.Format)
	compare(t, got, want)
	if len(got) != report.Tensors {
		t.Errorf("got %d tensors reported, want %d", report.Tensors, len(got))
	}
	again, err := checkpoint.ReadWith(fsys, "/out", checkpoint.Options{TopK: m.Shape.TopK})
	if err != nil {
		t.Logf("the export alone does not read as a checkpoint: %v", err)
	} else if !again.Shape.SameSize(cp.Shape) {
		t.Errorf("got shape %+v from the export, want %+v", again.Shape, cp.Shape)
	}
}

func compare(t *testing.T, got, want map[string]content) {
	t.Helper()
	for name, w := range want {
		g, ok := got[name]
		switch {
		case !ok:
			t.Errorf("tensor %s is missing; got %s", name, strings.Join(keys(got)[:min(5, len(got))], ", "))
			return
		case g.typ != w.typ || !slices.Equal(g.dims, w.dims):
			t.Errorf("tensor %s: got %s %v, want %s %v", name, g.typ, g.dims, w.typ, w.dims)
		case !bytes.Equal(g.data, w.data):
			t.Errorf("tensor %s: got other bytes", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("tensor %s was not in the checkpoint", name)
			return
		}
	}
}

func keys(m map[string]content) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func buildStore(t testing.TB, fsys layout.WriteFS, dir string, cp *layout.Checkpoint, lanes ...layout.LaneSpec) {
	t.Helper()
	plan, err := layout.PlanStore(*cp, layout.PlanOptions{Lanes: lanes})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Build(context.Background(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: cp}); err != nil {
		t.Fatal(err)
	}
}
