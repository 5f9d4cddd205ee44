package synthckpt_test

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/internal/synthckpt"
	"outrider/layout"
	"outrider/layout/checkpoint"
)

// Every family, in one file and in three: what is found is what was written, a
// store of it verifies against it, and export gives the tensors back. The table
// of docs/checkpoints.md says so.
func TestEveryFamily(t *testing.T) {
	list := families(t)
	rows := make([]string, len(list))
	t.Run("all", func(t *testing.T) {
		for i, family := range list {
			t.Run(family.Name+"/"+family.Format, func(t *testing.T) {
				t.Parallel()
				rows[i] = wholeWay(t, family)
			})
		}
	})
	if !t.Failed() && !slices.Contains(rows, "") { // else some were left out by -run
		checkTable(t, rows)
	}
}

// wholeWay takes a family from its tensors to a store and back, and tells of it.
func wholeWay(t *testing.T, family synthckpt.Info) (row string) {
	m := plan(t, family)
	for _, shards := range []int{1, 3} {
		fsys, path, _ := write(t, m, shards)
		cp, err := checkpoint.Read(fsys, path)
		if err != nil {
			t.Fatalf("%d shards: %v", shards, err)
		}
		sameModel(t, m, &cp)
		built(t, fsys, &cp)
		exported(t, fsys, m, path)
		if next := tableRow(family, &cp, []string{"verified", "exported"}); row != "" && next != row {
			t.Errorf("in 3 shards: got %q, want as in one file, %q", next, row)
		} else {
			row = next
		}
	}
	return row
}

// sameModel holds what was found against what was written.
func sameModel(t *testing.T, m *synthckpt.Model, cp *layout.Checkpoint) {
	t.Helper()
	if !cp.Shape.Equal(m.Shape) {
		t.Errorf("got shape %+v, want %+v", cp.Shape, m.Shape)
	}
	if cp.Format != m.Format {
		t.Errorf("got format %q, want %q", cp.Format, m.Format)
	}
	var want []string
	var routed, rest int64
	for _, x := range m.Tensors {
		switch {
		case x.Routed && !x.Predict:
			want = append(want, x.Name)
			routed += x.Bytes
		default:
			rest += x.Bytes
		}
	}
	got, bytes := sources(cp)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("got expert tensors %s, want %s", short(got, want), short(want, got))
	}
	if bytes != routed {
		t.Errorf("got experts of %d bytes, want %d", bytes, routed)
	}
	for _, g := range cp.Resident {
		rest -= g.Bytes
	}
	if rest != 0 {
		t.Errorf("resident groups %+v: %d bytes are in none", cp.Resident, rest)
	}
}

// sources lists the names of all expert tensors, and their bytes.
func sources(cp *layout.Checkpoint) (names []string, bytes int64) {
	for _, layer := range cp.Layers {
		for i := range layer.Tensors {
			x := &layer.Tensors[i]
			bytes += x.Bytes * int64(cp.Shape.Experts)
			if x.Each == nil || !strings.Contains(x.Source, "{expert}") {
				names = append(names, x.Source)
				continue
			}
			for e := range cp.Shape.Experts {
				names = append(names, strings.ReplaceAll(x.Source, "{expert}", strconv.Itoa(e)))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), bytes
}

// short shows the first names of a list that another has not.
func short(list, other []string) string {
	var only []string
	for _, name := range list {
		if !slices.Contains(other, name) && len(only) < 4 {
			only = append(only, name)
		}
	}
	return strconv.Itoa(len(list)) + " with " + strings.Join(only, ", ")
}

// built makes a store, and verifies it against the checkpoint.
func built(t *testing.T, fsys *memfs.FS, cp *layout.Checkpoint) {
	t.Helper()
	plan, err := layout.PlanStore(*cp, layout.PlanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join("/m", "store")
	if _, err := layout.Build(t.Context(), layout.BuildOptions{FS: fsys, Dir: dir, Plan: plan, Checkpoint: cp}); err != nil {
		t.Fatal(err)
	}
	report, err := layout.Verify(t.Context(), layout.VerifyOptions{FS: fsys, Dir: dir, Source: cp})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() || !report.Compared || report.Records != cp.Shape.Count() {
		t.Errorf("verify: %+v", report)
	}
}
