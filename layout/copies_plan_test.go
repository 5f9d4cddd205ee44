package layout_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"outrider/layout"

	"pgregory.net/rapid"
)

// evenly gives all experts one heat, as no heat at all does.
func evenly(layout.ExpertID) float64 { return 1 }

// coldestCopied proves that no record without copies is hotter than one with.
func coldestCopied(t *rapid.T, p *layout.Plan, heat func(layout.ExpertID) float64) {
	coldest, hottest := 1e18, -1e18
	for i := range p.Shape.Count() {
		if id := p.Shape.ID(i); p.Copies(id) != nil {
			coldest = min(coldest, heat(id))
		} else {
			hottest = max(hottest, heat(id))
		}
	}
	if hottest > coldest {
		t.Fatalf("a record of heat %v has no copies, one of heat %v has", hottest, coldest)
	}
}

// checkCopies: one for each piece, on another lane, in place and inside its file.
func checkCopies(t *rapid.T, p *layout.Plan, id layout.ExpertID, ends []int64) {
	copies, pieces := p.Copies(id), p.Pieces(id)
	if copies == nil {
		return
	}
	if len(copies) != len(pieces) {
		t.Fatalf("%v: got %d copies of %d pieces", id, len(copies), len(pieces))
	}
	step := max(4096, p.Forms[p.Layers[id.Layer]].Align)
	for i, c := range copies {
		piece := pieces[i]
		if c.Lane == piece.Lane || c.Bytes != piece.Bytes || (c.Offset-piece.Offset)%step != 0 {
			t.Fatalf("%v: got the copy %+v of %+v, want it elsewhere and at the same place modulo %d", id, c, piece, step)
		}
		if c.Offset < max(ends[c.Lane], 4096) {
			t.Fatalf("%v: the copy %+v overlaps what ends at %d", id, c, ends[c.Lane])
		}
		ends[c.Lane] = c.Offset + c.Bytes
		for align := int64(512); align <= 64<<10; align *= 2 {
			first := piece.Offset / align * align
			last := (piece.Offset + piece.Bytes + align - 1) / align * align
			shift := c.Offset - piece.Offset
			if first+shift < 0 || last+shift > p.Lanes[c.Lane].CopySize {
				t.Fatalf("%v: the window of %d bytes around the copy %+v leaves the file of %d", id, align, c, p.Lanes[c.Lane].CopySize)
			}
		}
	}
}

func TestCopiesKeepTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cp := drawCheckpoint(t)
		opts := drawOptions(t, cp.Shape)
		opts.Lanes = append(opts.Lanes, layout.LaneSpec{})
		opts.Copies.Bytes = rapid.Int64Range(1<<10, 40<<20).Draw(t, "budget")
		heat := evenly
		if rapid.Bool().Draw(t, "heated") {
			seed := rapid.Uint64().Draw(t, "seed")
			heat = func(id layout.ExpertID) float64 {
				return float64(rand.New(rand.NewPCG(seed, uint64(cp.Shape.Ordinal(id)))).IntN(8))
			}
			opts.Copies.Heat = heat
		}
		p, err := layout.PlanStore(cp, opts)
		if errors.Is(err, layout.ErrPlan) && strings.Contains(err.Error(), "too few") {
			return // not even one record fits; another test sees to that
		}
		if err != nil {
			t.Fatalf("PlanStore: %v", err)
		}
		again, _ := layout.PlanStore(cp, opts)
		if !reflect.DeepEqual(p, again) {
			t.Fatalf("the same input gave another plan")
		}
		if p.CopyBytes > opts.Copies.Bytes || p.CopiedRecords < 1 {
			t.Fatalf("got copies of %d records in %d bytes, want 1 or more in at most %d", p.CopiedRecords, p.CopyBytes, opts.Copies.Bytes)
		}
		ends, copied := make([]int64, len(p.Lanes)), 0
		for l := range cp.Layers {
			for _, e := range p.Order(l) {
				id := layout.ExpertID{Layer: int32(l), Index: e}
				checkCopies(t, p, id, ends)
				if p.Copies(id) != nil {
					copied++
				}
			}
		}
		if copied != p.CopiedRecords {
			t.Fatalf("got copies of %d records, the plan says %d", copied, p.CopiedRecords)
		}
		coldestCopied(t, p, heat)
		opts.Copies = layout.CopiesOptions{}
		without, err := layout.PlanStore(cp, opts)
		if err != nil || without.Bytes() != p.Bytes() || without.CopyBytes != 0 {
			t.Fatalf("without copies: got %v and %d bytes, want %d: copies move no record", err, without.Bytes(), p.Bytes())
		}
	})
}

// TestCopiesFillTheirBudget: one more record would not have fitted.
func TestCopiesFillTheirBudget(t *testing.T) {
	cp := uniform(3, 40, 52224)
	opts := layout.PlanOptions{Lanes: make([]layout.LaneSpec, 3)}
	for budget := int64(300_000); budget < 9_000_000; budget += 777_777 {
		opts.Copies.Bytes = budget
		p := plan(t, cp, opts)
		// A file may need 64 KiB more at either end, for windows.
		if least := (budget-6*64<<10)/52224 - 5; p.CopyBytes > budget || (p.CopiedRecords < 120 && int64(p.CopiedRecords) < least) {
			t.Errorf("budget of %d: got copies of %d records in %d bytes, want %d records or more", budget, p.CopiedRecords, p.CopyBytes, least)
		}
	}
	opts.Copies.Bytes = 1 << 40
	if p := plan(t, cp, opts); p.CopiedRecords != 120 {
		t.Errorf("budget without end: got copies of %d records, want all 120", p.CopiedRecords)
	}
}

func TestCopiesSpreadOverLayersAndLanes(t *testing.T) {
	p := plan(t, uniform(4, 32, 52224), layout.PlanOptions{Lanes: make([]layout.LaneSpec, 3), Copies: layout.CopiesOptions{Bytes: 2 << 20}})
	var perLayer [4]int
	var perLane [3]int64
	for i := range p.Shape.Count() {
		for _, c := range p.Copies(p.Shape.ID(i)) {
			perLayer[p.Shape.ID(i).Layer]++
			perLane[c.Lane] += c.Bytes
		}
	}
	if slices.Max(perLayer[:])-slices.Min(perLayer[:]) > 1 {
		t.Errorf("without heat: got %v copies of the layers, want them even", perLayer)
	}
	if slices.Max(perLane[:])-slices.Min(perLane[:]) > 2*52224 {
		t.Errorf("got %v bytes of copies on the lanes, want them even", perLane)
	}
}

// TestCopiesAvoidSlowLanes: only where no other lane is left, a slow one gets copies.
func TestCopiesAvoidSlowLanes(t *testing.T) {
	for _, test := range []struct {
		weights []float64
		want    []bool
	}{
		{[]float64{10, 10, 1}, []bool{true, true, false}},
		{[]float64{10, 1}, []bool{false, true}},
	} {
		var lanes []layout.LaneSpec
		for _, w := range test.weights {
			lanes = append(lanes, layout.LaneSpec{Weight: w})
		}
		p := plan(t, uniform(4, 32, 52224), layout.PlanOptions{Lanes: lanes, Copies: layout.CopiesOptions{Bytes: 3 << 20}})
		for i, lane := range p.Lanes {
			if (lane.CopySize > 0) != test.want[i] {
				t.Errorf("weights %v: lane %d has %d bytes of copies, want some: %v", test.weights, i, lane.CopySize, test.want[i])
			}
		}
	}
}
