package layout_test

import (
	"slices"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout"
)

var journalStamp = [32]byte{1, 2, 3}

func TestJournalEndsAtDamage(t *testing.T) {
	p := plan(t, source(t, memfs.New(memfs.Options{}), smallModel), layout.PlanOptions{})
	whole := p.EncodeJournal(journalStamp, []int{3, 1}, []int{7}, []int{1, 17})
	const header, entry = 64, 4 + 4*4
	first, second := header+8+2*entry, header+8+2*entry+8+entry
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		rows   []int
		end    int
	}{
		{"whole", func(b []byte) []byte { return b }, []int{3, 1, 7, 17}, len(whole)},
		{"empty", func([]byte) []byte { return nil }, nil, 0},
		{"header cut", func(b []byte) []byte { return b[:header-1] }, nil, 0},
		{"magic", flip(0), nil, 0},
		{"version", flip(8), nil, 0},
		{"checksums of a row", flip(12), nil, 0},
		{"another build's", flip(16), nil, 0},
		{"reserve", flip(50), nil, 0},
		{"header only", func(b []byte) []byte { return b[:header] }, nil, header},
		{"first batch's length", flip(header), nil, header},
		{"first batch's length, beyond all bounds", func(b []byte) []byte { copy(b[header:], "\xff\xff\xff\xff"); return b }, nil, header},
		{"first batch's rows", flip(header + 4), nil, header},
		{"second batch's checksum", flip(second - 1), []int{3, 1}, first},
		{"second batch cut", func(b []byte) []byte { return b[:second-1] }, []int{3, 1}, first},
		{"last batch cut", func(b []byte) []byte { return b[:len(b)-1] }, []int{3, 1, 7}, second},
		{"zeros behind", func(b []byte) []byte { return append(b, make([]byte, 512)...) }, []int{3, 1, 7, 17}, len(whole)},
	} {
		rows, sums, end := p.DecodeJournal(test.change(slices.Clone(whole)), journalStamp)
		if !slices.Equal(rows, test.rows) || end != int64(test.end) {
			t.Errorf("%s: got rows %v up to %d, want %v up to %d", test.name, rows, end, test.rows, test.end)
		}
		for _, row := range rows {
			if got := sums[row*4]; got != uint32(row) {
				t.Errorf("%s: row %d: got checksum %d, want %d", test.name, row, got, row)
			}
		}
	}
	stranger := p.EncodeJournal(journalStamp, []int{2}, []int{18})
	if rows, _, end := p.DecodeJournal(stranger, journalStamp); !slices.Equal(rows, []int{2}) || end != header+8+entry {
		t.Errorf("a row that the plan has not: got rows %v up to %d, want [2] only", rows, end)
	}
}

func FuzzJournal(f *testing.F) {
	p := plan(f, source(f, memfs.New(memfs.Options{}), smallModel), layout.PlanOptions{})
	f.Add(p.EncodeJournal(journalStamp, []int{3, 1}, []int{7}))
	f.Add(p.EncodeJournal(journalStamp))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, _, end := p.DecodeJournal(data, journalStamp)
		seen := map[int]bool{}
		for _, row := range rows {
			if row < 0 || row >= 18 || seen[row] {
				t.Fatalf("got row %d, want each of 18 at most once", row)
			}
			seen[row] = true
		}
		if end < 0 || end > int64(len(data)) {
			t.Fatalf("got an end at %d of %d bytes", end, len(data))
		}
	})
}
