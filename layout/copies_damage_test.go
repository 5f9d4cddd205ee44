package layout_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"outrider/internal/faultfs"
	"outrider/internal/memfs"
	"outrider/layout"
)

const (
	copiesPath = "/m/copies.bin"
	inside     = "/m/lane-0.bin.copies"
	outside    = "/drive/l1.bin.copies"
)

// without opens a store whose copies are damaged: it must open, serve every
// expert, use the copies beside the lanes of want only, and say why.
func without(t *testing.T, name string, s *stage, text string, want [2]bool) {
	t.Helper()
	store, err := layout.OpenStore(s.fault, "/m", layout.Buffered)
	if err != nil {
		t.Errorf("%s: got %v, want the store without copies", name, err)
		return
	}
	defer store.Close()
	sameExperts(t, s.mem, s.cp, store)
	sameCopies(t, store)
	state := store.Copies()
	if !strings.Contains(state.Reason, text) || !strings.Contains(state.Reason, "not used") || strings.Contains(state.Reason, "layout:") {
		t.Errorf("%s: got the reason %q, want %q", name, state.Reason, text)
	}
	for i, lane := range store.Lanes() {
		if (lane.Copies != nil) != want[i] || (lane.CopiesPath != "") != want[i] {
			t.Errorf("%s: lane %d: got copies %v at %q, want some: %v", name, i, lane.Copies, lane.CopiesPath, want[i])
		}
	}
}

func TestOpenWithoutDamagedCopies(t *testing.T) {
	none, first, second := [2]bool{}, [2]bool{true, false}, [2]bool{false, true}
	remove := func([]byte) []byte { return nil }
	sealed := func(at int, to byte) func([]byte) []byte {
		return func(b []byte) []byte { b[at] = to; layout.SealCopyHeader(b); return b }
	}
	for _, test := range []struct {
		name   string
		path   string
		change func([]byte) []byte
		text   string
		want   [2]bool
	}{
		{"index empty", copiesPath, func([]byte) []byte { return []byte{} }, "less than a header", none},
		{"index's magic", copiesPath, flip(0), "starts with", none},
		{"index of a newer version", copiesPath, flip(8), "version is 17", none},
		{"index's header", copiesPath, flip(40), "header's checksum", none},
		{"index's size of copies", copiesPath, flip(64), "checksum", none},
		{"index's rows", copiesPath, flip(100), "checksum", none},
		{"index's trailer", copiesPath, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, "checksum", none},
		{"index cut", copiesPath, cutOff(32), "has", none},
		{"index too long", copiesPath, func(b []byte) []byte { return append(b, make([]byte, 1000)...) }, "want at most", none},
		{"index missing", copiesPath, remove, "copies.bin is missing", none},
		{"copies missing", outside, remove, "copies beside lane 1", first},
		{"copies in the folder missing", inside, remove, "copies beside lane 0", second},
		{"copies empty", outside, func([]byte) []byte { return []byte{} }, "it has 0 bytes", first},
		{"copies cut", outside, cutOff(4096), "copies.bin says", first},
		{"copies too long", inside, func(b []byte) []byte { return append(b, 0) }, "copies.bin says", second},
		{"copies' magic", outside, flip(3), "starts with", first},
		{"copies of a newer version", outside, sealed(8, 2), "version is 2", first},
		{"copies' header", outside, flip(33), "header's checksum", first},
		{"copies of another lane", outside, sealed(16, 0), "another lane", first},
		{"copies of another build", outside, sealed(20, 77), "another lane, build or store", first},
		{"copies of another store", outside, sealed(40, 1), "another lane, build or store", first},
	} {
		s, _, _ := copiesStage(t, smallModel)
		data, err := s.mem.ReadFile(test.path)
		if err != nil {
			t.Fatal(err)
		}
		if data = test.change(data); data == nil {
			err = s.mem.RemoveAll(test.path)
		} else {
			err = s.mem.WriteFile(test.path, data)
		}
		if err != nil {
			t.Fatal(err)
		}
		without(t, test.name, s, test.text, test.want)
		report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: s.mem, Dir: "/m", Parallel: 1})
		if err != nil || report.Found != 1 || report.Damages[0].Lane != test.path {
			t.Errorf("%s: Verify: got %+v and %v, want one finding of %s", test.name, report, err, test.path)
		}
	}
}

func TestOpenWithoutUnreadableCopies(t *testing.T) {
	for _, test := range []struct {
		name string
		rule faultfs.Rule
		text string
		want [2]bool
	}{
		{"index cannot be opened", faultfs.Rule{Op: faultfs.Open, Name: "copies.bin", Err: fs.ErrPermission}, "permission", [2]bool{}},
		{"index cannot be read", faultfs.Rule{Op: faultfs.ReadAt, Name: "copies.bin", Err: syscall.EIO}, "input/output error", [2]bool{}},
		{"index is not delivered", faultfs.Rule{Op: faultfs.ReadAt, Name: "copies.bin", Kind: faultfs.Silent}, "starts with", [2]bool{}},
		{"copies cannot be opened", faultfs.Rule{Op: faultfs.Open, Name: "l1.bin.copies", Err: syscall.EIO}, "input/output error", [2]bool{true, false}},
		{"copies cannot be read", faultfs.Rule{Op: faultfs.ReadAt, Name: "l1.bin.copies", To: 1, Err: syscall.EIO}, "input/output error", [2]bool{true, false}},
		{"copies end early", faultfs.Rule{Op: faultfs.ReadAt, Name: "l1.bin.copies", To: 1, Kind: faultfs.Short, Bytes: 10}, "unexpected EOF", [2]bool{true, false}},
		{"copies are not delivered", faultfs.Rule{Op: faultfs.ReadAt, Name: "l1.bin.copies", To: 1, Kind: faultfs.Silent}, "starts with", [2]bool{true, false}},
	} {
		s, _, _ := copiesStage(t, smallModel)
		s.fault.Add(test.rule)
		without(t, test.name, s, test.text, test.want)
	}
}

// TestCopiesBounds gives wrong indexes right checksums: the bounds must catch them.
func TestCopiesBounds(t *testing.T) {
	const rows = 64 + 2*8 // behind the header and the sizes of two lanes
	put32 := binary.LittleEndian.PutUint32
	put64 := binary.LittleEndian.PutUint64
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		text   string
	}{
		{"header size", func(b []byte) []byte { put32(b[12:], 128); return b }, "header has 128"},
		{"lanes", func(b []byte) []byte { put32(b[16:], 3); return b }, "header has 3"},
		{"row size", func(b []byte) []byte { put32(b[20:], 31); return b }, "header has 31"},
		{"number of rows", func(b []byte) []byte { put64(b[24:], 1<<60); return b }, "the store has 18 pieces"},
		{"number of rows too small", func(b []byte) []byte { put64(b[24:], 17); return b }, "want"},
		{"store", func(b []byte) []byte { b[32] ^= 1; return b }, "belongs to store"},
		{"reserve", func(b []byte) []byte { b[50] = 1; return b }, "reserved bytes"},
		{"size beyond any file", func(b []byte) []byte { put64(b[64:], 1<<62); return b }, "have size"},
		{"size odd", func(b []byte) []byte { put64(b[64:], 4097); return b }, "have size 4097"},
		{"size too small", func(b []byte) []byte { put64(b[64:], 8192); return b }, "where"},
		{"layer", func(b []byte) []byte { put32(b[rows:], 1<<31); return b }, "beyond the store"},
		{"expert", func(b []byte) []byte { put32(b[rows+4:], 6); return b }, "beyond the store"},
		{"lane of the piece", func(b []byte) []byte { put32(b[rows+8:], 2); return b }, "beyond the store"},
		{"lane of the copy", func(b []byte) []byte { put32(b[rows+12:], 2); return b }, "beyond the store"},
		{"offset beyond any file", func(b []byte) []byte { put64(b[rows+16:], 1<<63); return b }, "beyond the store"},
		{"bytes", func(b []byte) []byte { put64(b[rows+24:], 512); return b }, "a copy of 512 bytes"},
		{"copy beside its own lane", func(b []byte) []byte { put32(b[rows+12:], binary.LittleEndian.Uint32(b[rows+8:])); return b }, "cannot hold a copy"},
		{"piece that is none", func(b []byte) []byte {
			put32(b[rows+8:], binary.LittleEndian.Uint32(b[rows+12:]))
			put64(b[rows+24:], 0)
			return b
		}, "has no copy, others have"},
		{"order", func(b []byte) []byte {
			first, second := b[rows:rows+32], b[rows+32:rows+64]
			copy(first, append(bytes.Clone(second), first...)[:32])
			put32(second, 0)
			put32(second[4:], 0)
			return b
		}, "comes after a later one"},
		{"copy twice", func(b []byte) []byte { copy(b[rows+32:rows+64], b[rows:]); return b }, "which has none"},
		{"offset in the header", func(b []byte) []byte { put64(b[rows+16:], 0); return b }, "where 4096"},
		{"offset of another residue", func(b []byte) []byte {
			put64(b[rows-8:], binary.LittleEndian.Uint64(b[rows-8:])+64<<10) // room for it
			put64(b[rows+16:], binary.LittleEndian.Uint64(b[rows+16:])+512)
			return b
		}, "differ modulo"},
		{"copies overlap", func(b []byte) []byte {
			last := b[rows+17*32:]
			put64(last[16:], binary.LittleEndian.Uint64(last[16:])-4096)
			return b
		}, "are free"},
	} {
		s, store, _ := copiesStage(t, smallModel)
		data, err := s.mem.ReadFile(copiesPath)
		if err != nil {
			t.Fatal(err)
		}
		data = test.change(data)
		layout.SealCopies(data)
		_, err = store.DecodeCopies(data)
		wrong{nil, "copies.bin", test.text}.check(t, test.name, err)
	}
}

// TestFlippedBitsOfCopiesAreFound: one bit of every byte of the index, and of the
// start of a file of copies, is tried.
func TestFlippedBitsOfCopiesAreFound(t *testing.T) {
	s, store, _ := copiesStage(t, smallModel)
	data, err := s.mem.ReadFile(copiesPath)
	if err != nil {
		t.Fatal(err)
	}
	for at := range data {
		data[at] ^= 1 << (at % 8)
		_, err := store.DecodeCopies(data)
		data[at] ^= 1 << (at % 8)
		var damage *layout.CorruptError
		if !errors.As(err, &damage) && !errors.Is(err, layout.ErrVersion) {
			t.Fatalf("bit %d of byte %d flipped: got %v, want one of two errors", at%8, at, err)
		}
	}
	for at := range 64 {
		edit(t, s.mem, outside, flip(at))
		without(t, fmt.Sprint("byte ", at), s, "copies beside lane 1", [2]bool{true, false})
		edit(t, s.mem, outside, flip(at))
	}
}

func TestVerifyFindsDamagedCopies(t *testing.T) {
	for _, model := range []modelSpec{smallModel, twoModel} {
		s, store, _ := copiesStage(t, model)
		id := layout.ExpertID{Layer: 1, Index: 1}
		var p layout.Placement
		if err := store.Locate(id, &p); err != nil {
			t.Fatal(err)
		}
		c := p.Reads[0].Copy
		path, at := store.Lanes()[c.Lane].CopiesPath, int(c.Offset)
		size, err := s.mem.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		stray := layout.ExpertID{Layer: -1, Index: -1}
		for _, test := range []struct {
			name   string
			at     int
			id     layout.ExpertID
			reason string
		}{
			{"first byte", at, id, "checksum"},
			{"last byte of the file", int(size.Size()) - 1, stray, "not zero"},
			{"behind the header", 64, stray, "not zero"},
		} {
			edit(t, s.mem, path, flip(test.at))
			report, err := layout.Verify(context.Background(), layout.VerifyOptions{FS: s.mem, Dir: "/m", Source: &s.cp})
			if err != nil || report.Found != 1 {
				t.Fatalf("%s: got %+v and %v, want one finding", test.name, report, err)
			}
			if got := report.Damages[0]; got.ID != test.id || got.Lane != path || !strings.Contains(got.Reason, test.reason) || (test.id == id && got.Offset != int64(at)) {
				t.Errorf("%s: got %v, want %v of %s: %s", test.name, got, test.id, path, test.reason)
			}
			edit(t, s.mem, path, flip(test.at))
		}
	}
}

// TestCopiesOfAnotherBuildAreRefused: two builds of one store may have other copies.
func TestCopiesOfAnotherBuildAreRefused(t *testing.T) {
	s, store, all := copiesStage(t, smallModel)
	other, err := s.mem.ReadFile(outside)
	if err != nil {
		t.Fatal(err)
	}
	fewer := newStage(t, memfs.Options{}, smallModel)
	fewer.plan = plan(t, fewer.cp, layout.PlanOptions{
		Lanes: []layout.LaneSpec{{}, {Path: "/drive/l1.bin"}}, Copies: layout.CopiesOptions{Bytes: 100_000},
	})
	if err := fewer.build(context.Background()); err != nil {
		t.Fatal(err)
	}
	id := open(t, fewer.mem, "/m", layout.Buffered).Manifest().ID
	if id != store.Manifest().ID || fewer.plan.CopiedRecords >= all.CopiedRecords {
		t.Fatalf("got stores %s and %s with copies of %d and %d records, want one id and fewer copies", store.Manifest().ID, id, all.CopiedRecords, fewer.plan.CopiedRecords)
	}
	if err := fewer.mem.WriteFile(outside, other[:fewer.plan.Lanes[1].CopySize]); err != nil {
		t.Fatal(err)
	}
	without(t, "another build", fewer, "another lane, build or store", [2]bool{})
}

func FuzzDecodeCopies(f *testing.F) {
	for _, model := range []modelSpec{smallModel, twoModel} {
		s, _, _ := copiesStage(f, model)
		data, err := s.mem.ReadFile(copiesPath)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, true)
		f.Add(data, false)
	}
	_, store, _ := copiesStage(f, twoModel)
	f.Fuzz(func(t *testing.T, data []byte, seal bool) {
		if seal {
			data = bytes.Clone(data)
			layout.SealCopies(data)
		}
		again, err := store.DecodeCopies(data)
		var damage *layout.CorruptError
		switch {
		case err == nil && !bytes.Equal(again, data):
			t.Fatal("what was decoded encodes to something else")
		case err != nil && !errors.As(err, &damage) && !errors.Is(err, layout.ErrVersion):
			t.Fatalf("got %v, want damage or another version", err)
		}
	})
}
