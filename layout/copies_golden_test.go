package layout_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

// goldenCopies holds the index of copies, and the starts of the files of copies, as
// version 1 was first written. It is never written again.
const goldenCopies = "testdata/golden-copies-v1"

// TestGoldenCopiesAreStillWrittenAndRead: the golden store with copies of all.
func TestGoldenCopiesAreStillWrittenAndRead(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the golden manifest names a Unix path")
	}
	fsys := memfs.New(memfs.Options{})
	cp := goldenCheckpoint(t, fsys)
	report := build(t, fsys, "/golden", cp, layout.PlanOptions{
		Lanes: make([]layout.LaneSpec, 2), Order: [][]int32{nil, {2, 0, 1}}, Copies: layout.CopiesOptions{Bytes: 1 << 20},
	})
	if report.ID != goldenID || report.CopiedRecords != 6 {
		t.Fatalf("got store %s with copies of %d records, want %s and 6", report.ID, report.CopiedRecords, goldenID)
	}
	for _, name := range []string{"copies.bin", "lane-0.bin.copies", "lane-1.bin.copies"} {
		want, err := os.ReadFile(filepath.Join(goldenCopies, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := fsys.ReadFile("/golden/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[:len(want)], want) || (name == "copies.bin" && len(got) != len(want)) {
			t.Errorf("%s: got other bytes than the golden ones", name)
		}
		if err := fsys.WriteFile("/golden/"+name, append(want, got[len(want):]...)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, fsys, "/golden", layout.Buffered)
	if state := s.Copies(); state.Records != 6 || state.Reason != "" {
		t.Errorf("got %+v, want copies of 6 records", state)
	}
	sameCopies(t, s)
}
