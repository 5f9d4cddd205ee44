package layout_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"outrider/layout"

	"pgregory.net/rapid"
)

// uniform is a checkpoint of one layer form, without files behind it.
func uniform(layers, experts int, sizes ...int64) layout.Checkpoint {
	cp := layout.Checkpoint{Shape: layout.Shape{Layers: layers, Experts: experts, TopK: 1}}
	var offset int64
	for range layers {
		var layer layout.CheckpointLayer
		for i, size := range sizes {
			layer.Tensors = append(layer.Tensors, layout.ExpertTensor{
				Projection: layout.Projection{Name: fmt.Sprint("p", i), Type: "F16", Bytes: size}, Offset: offset,
			})
			offset += size * int64(experts)
		}
		cp.Layers = append(cp.Layers, layer)
	}
	cp.Files = []layout.CheckpointFile{{Path: "/x", Size: offset}}
	return cp
}

func TestPlanChoosesTheAlignment(t *testing.T) {
	for _, test := range []struct {
		name  string
		sizes []int64
		align int64
		want  int64
		bytes int64 // of a record
	}{
		{"nothing to pad at 1024", []int64{17408, 17408, 17408}, 0, 1024, 52224},
		{"nothing to pad at 512", []int64{26112}, 0, 512, 26112},
		{"large records", []int64{1 << 20, 1 << 20, 1 << 20}, 0, 4096, 3 << 20},
		{"tiny records", []int64{100}, 0, 512, 512},
		{"asked for", []int64{100}, 8192, 8192, 8192},
		{"small ones at 64 bytes", []int64{100, 100, 300}, 512, 512, 1024},
		{"big ones aligned", []int64{100, 256 << 10}, 4096, 4096, 4096 + 256<<10},
	} {
		p := plan(t, uniform(2, 3, test.sizes...), layout.PlanOptions{Align: test.align})
		if p.Align != test.want || p.Forms[0].Bytes != test.bytes || len(p.Forms) != 1 {
			t.Errorf("%s: got alignment %d and records of %d bytes in %d forms, want %d, %d, 1", test.name, p.Align, p.Forms[0].Bytes, len(p.Forms), test.want, test.bytes)
		}
	}
}

func TestPlanSpreadsInProportion(t *testing.T) {
	for _, test := range []struct {
		name    string
		record  int64
		weights []float64
	}{
		{"cut, alike", 3 << 20, []float64{1, 1}},
		{"cut, 3 to 1", 3 << 20, []float64{3, 1}},
		{"cut, 10 to 1", 3 << 20, []float64{10, 1}},
		{"cut, 5 to 4 to 1", 2 << 20, []float64{5, 4, 1}},
		{"cut, three", 600 << 10, []float64{1, 1, 1}},
		{"whole, 2 to 1", 100 << 10, []float64{2, 1}},
		{"whole, tiny", 512, []float64{1, 1}},
		{"whole, four", 26112, []float64{2, 2, 3, 4}},
	} {
		var lanes []layout.LaneSpec
		var sum float64
		for _, w := range test.weights {
			lanes = append(lanes, layout.LaneSpec{Weight: w})
			sum += w
		}
		p := plan(t, uniform(4, 64, test.record), layout.PlanOptions{Lanes: lanes})
		for i, lane := range p.Lanes {
			got, want := float64(lane.Size)/float64(p.Bytes()), test.weights[i]/sum
			if math.Abs(got-want) > 0.02 {
				t.Errorf("%s: lane %d: got a share of %.3f, want %.3f", test.name, i, got, want)
			}
		}
	}
}

// A lane whose least piece would take longer than the whole record from the
// fastest lane gets nothing, and what it would have had goes to the others by weight.
func TestSlowLanesStandAside(t *testing.T) {
	for _, test := range []struct {
		name    string
		record  int64
		weights []float64
		want    []float64 // shares
	}{
		{"cut, too few bytes for 10 to 1", 1 << 20, []float64{10, 1}, []float64{1, 0}},
		{"cut, just too slow", 1 << 20, []float64{4.1, 1}, []float64{1, 0}},
		{"cut, just fast enough", 1 << 20, []float64{3.9, 1}, []float64{0.796, 0.204}},
		{"cut, one of three", 1 << 20, []float64{8, 8, 1}, []float64{0.5, 0.5, 0}},
		{"whole, 10 to 1", 52224, []float64{1, 10}, []float64{0, 1}},
		{"whole, 3 to 1", 52224, []float64{3, 1}, []float64{1, 0}},
		{"whole, 2 to 1", 52224, []float64{2, 1}, []float64{0.667, 0.333}},
		{"whole, four", 26112, []float64{1, 2, 3, 4}, []float64{0, 0.222, 0.333, 0.444}},
	} {
		var lanes []layout.LaneSpec
		for _, w := range test.weights {
			lanes = append(lanes, layout.LaneSpec{Weight: w})
		}
		p := plan(t, uniform(4, 64, test.record), layout.PlanOptions{Lanes: lanes})
		for i, lane := range p.Lanes {
			if got := float64(lane.Size) / float64(p.Bytes()); math.Abs(got-test.want[i]) > 0.02 || (test.want[i] == 0) != (lane.Size == 0) {
				t.Errorf("%s: lane %d: got a share of %.3f, want %.3f", test.name, i, got, test.want[i])
			}
		}
	}
}

// noLaneWaits: no piece takes its lane longer than the record takes the fastest
// lane, and no whole record more than twice as long.
func noLaneWaits(t *rapid.T, p *layout.Plan, id layout.ExpertID) {
	var fastest float64
	for _, lane := range p.Lanes {
		fastest = max(fastest, lane.Weight)
	}
	record := float64(p.Forms[p.Layers[id.Layer]].Bytes)
	pieces := p.Pieces(id)
	for _, piece := range pieces {
		allowed := 1.02 // weights are rounded to whole numbers
		if len(pieces) == 1 {
			allowed *= 2
		}
		if took := float64(piece.Bytes) / p.Lanes[piece.Lane].Weight * fastest / record; took > allowed {
			t.Fatalf("%v: its piece %+v takes %.2f x as long as the whole record on the fastest lane", id, piece, took)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	missing := uniform(2, 3, 100)
	missing.Layers = missing.Layers[:1]
	outside := uniform(2, 3, 100)
	outside.Files[0].Size--
	twice := uniform(1, 3, 100, 100)
	twice.Layers[0].Tensors[1].Name = "p0"
	partial := uniform(1, 3, 100)
	partial.Layers[0].Tensors[0].Each = make([]layout.Span, 2)
	empty := uniform(1, 3)
	ok := uniform(2, 3, 100)
	two := make([]layout.LaneSpec, 2)
	for _, test := range []struct {
		name string
		cp   layout.Checkpoint
		opts layout.PlanOptions
		want error
		text string
	}{
		{"layer missing", missing, layout.PlanOptions{}, layout.ErrCheckpoint, "expert tensors for 1 layers, want 2"},
		{"file truncated", outside, layout.PlanOptions{}, layout.ErrCheckpoint, "lie outside /x"},
		{"name twice", twice, layout.PlanOptions{}, layout.ErrCheckpoint, "not its own"},
		{"expert missing", partial, layout.PlanOptions{}, layout.ErrCheckpoint, "spans for 2 experts, want 3"},
		{"no tensors", empty, layout.PlanOptions{}, layout.ErrCheckpoint, "0 expert tensors"},
		{"alignment odd", ok, layout.PlanOptions{Align: 1000}, layout.ErrPlan, "alignment 1000"},
		{"alignment too large", ok, layout.PlanOptions{Align: 4 << 20}, layout.ErrPlan, "alignment 4194304"},
		{"weight negative", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Weight: -1}}}, layout.ErrPlan, "weight -1"},
		{"weight NaN", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Weight: math.NaN()}}}, layout.ErrPlan, "weight NaN"},
		{"lane climbs", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Path: "../x"}}}, layout.ErrPlan, "neither absolute nor a plain file name"},
		{"lane is the copies' index", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Path: "copies.bin"}}}, layout.ErrPlan, "store's own"},
		{"copies without a second lane", ok, layout.PlanOptions{Copies: layout.CopiesOptions{Bytes: 1 << 20}}, layout.ErrPlan, "at least two lanes"},
		{"copies of fewer bytes than none", ok, layout.PlanOptions{Lanes: two, Copies: layout.CopiesOptions{Bytes: -1}}, layout.ErrPlan, "copies of -1 bytes"},
		{"copies of too few bytes", ok, layout.PlanOptions{Lanes: two, Copies: layout.CopiesOptions{Bytes: 4096}}, layout.ErrPlan, "the hottest record alone takes"},
		{"copies by no heat", ok, layout.PlanOptions{Lanes: two, Copies: layout.CopiesOptions{Bytes: 1 << 20, Heat: func(layout.ExpertID) float64 { return math.NaN() }}}, layout.ErrPlan, "not a number"},
		{"lane named as copies", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Path: "x"}, {Path: "x.copies"}}, Copies: layout.CopiesOptions{Bytes: 1 << 20}}, layout.ErrPlan, "which the copies beside lane x need"},
		{"lane is ours", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Path: "index.bin"}}}, layout.ErrPlan, "store's own"},
		{"lanes alike", ok, layout.PlanOptions{Lanes: []layout.LaneSpec{{Path: "/a/x"}, {Path: "/b/x"}}}, layout.ErrPlan, "two lanes"},
		{"too many lanes", ok, layout.PlanOptions{Lanes: make([]layout.LaneSpec, 65)}, layout.ErrPlan, "65 lanes"},
		{"order for too few layers", ok, layout.PlanOptions{Order: [][]int32{nil}}, layout.ErrPlan, "order for 1 layers"},
		{"order too short", ok, layout.PlanOptions{Order: [][]int32{nil, {0, 1}}}, layout.ErrPlan, "has 2 experts, want 3"},
		{"order repeats", ok, layout.PlanOptions{Order: [][]int32{nil, {0, 1, 1}}}, layout.ErrPlan, "comes twice"},
		{"order strays", ok, layout.PlanOptions{Order: [][]int32{nil, {0, 1, 3}}}, layout.ErrPlan, "is not in a model"},
	} {
		_, err := layout.PlanStore(test.cp, test.opts)
		if !errors.Is(err, test.want) || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%s: got %v, want %v with %q", test.name, err, test.want, test.text)
		}
	}
}

// drawCheckpoint makes any checkpoint that a plan must be able to take.
func drawCheckpoint(t *rapid.T) layout.Checkpoint {
	size := rapid.OneOf(rapid.Int64Range(1, 5000), rapid.Int64Range(200<<10, 300<<10), rapid.Int64Range(1, 3<<20))
	forms := rapid.SliceOfN(rapid.SliceOfN(size, 1, 5), 1, 3).Draw(t, "forms")
	layers, experts := rapid.IntRange(1, 5).Draw(t, "layers"), rapid.IntRange(1, 12).Draw(t, "experts")
	cp := uniform(layers, experts)
	var offset int64
	for l := range cp.Layers {
		for i, bytes := range rapid.SampledFrom(forms).Draw(t, "form") {
			cp.Layers[l].Tensors = append(cp.Layers[l].Tensors, layout.ExpertTensor{
				Projection: layout.Projection{Name: fmt.Sprint("p", i), Bytes: bytes}, Offset: offset,
			})
			offset += bytes * int64(experts)
		}
	}
	cp.Files[0].Size = offset
	return cp
}

func drawOptions(t *rapid.T, shape layout.Shape) layout.PlanOptions {
	opts := layout.PlanOptions{Align: rapid.SampledFrom([]int64{0, 0, 512, 4096, 65536, 2 << 20}).Draw(t, "align")}
	for _, w := range rapid.SliceOfN(rapid.Float64Range(0.1, 10), 1, 5).Draw(t, "weights") {
		opts.Lanes = append(opts.Lanes, layout.LaneSpec{Weight: w})
	}
	if rapid.Bool().Draw(t, "ordered") {
		index := make([]int32, shape.Experts)
		for e := range index {
			index[e] = int32(e)
		}
		for range shape.Layers {
			opts.Order = append(opts.Order, rapid.Permutation(index).Draw(t, "order"))
		}
	}
	return opts
}

func TestPlanKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cp := drawCheckpoint(t)
		opts := drawOptions(t, cp.Shape)
		p, err := layout.PlanStore(cp, opts)
		if err != nil {
			t.Fatalf("PlanStore: %v", err)
		}
		again, _ := layout.PlanStore(cp, opts)
		if !reflect.DeepEqual(p, again) {
			t.Fatalf("the same input gave another plan")
		}
		checkSums(t, &cp, p, opts.Align)
		ends := make([]int64, len(p.Lanes))
		for l := range cp.Layers {
			for _, e := range p.Order(l) {
				checkRecord(t, p, layout.ExpertID{Layer: int32(l), Index: e}, ends)
				noLaneWaits(t, p, layout.ExpertID{Layer: int32(l), Index: e})
			}
		}
		for i, end := range ends {
			if size := p.Lanes[i].Size; size < end || size-end >= 4096 || size%4096 != 0 {
				t.Fatalf("lane %d: got size %d for records that end at %d", i, size, end)
			}
		}
	})
}

// checkSums: every tensor byte is in, and automatic padding keeps its bound.
func checkSums(t *rapid.T, cp *layout.Checkpoint, p *layout.Plan, align int64) {
	var data, stored int64
	for l := range cp.Layers {
		order := p.Order(l)
		slices.Sort(order)
		for e, got := range order {
			if int(got) != e {
				t.Fatalf("layer %d: order has %d where %d is missing", l, got, e)
			}
		}
		for _, tensor := range cp.Layers[l].Tensors {
			data += tensor.Bytes * int64(cp.Shape.Experts)
		}
		stored += p.Forms[p.Layers[l]].Bytes * int64(cp.Shape.Experts)
	}
	if p.DataBytes != data {
		t.Fatalf("data: got %d bytes, want %d", p.DataBytes, data)
	}
	if align == 0 && p.Align > 512 && (stored-data)*100 > data {
		t.Fatalf("alignment %d pads %d of %d bytes", p.Align, stored-data, data)
	}
}

// checkRecord: aligned, whole, in file order, cut only into large pieces.
func checkRecord(t *rapid.T, p *layout.Plan, id layout.ExpertID, ends []int64) {
	form := &p.Forms[p.Layers[id.Layer]]
	pieces := p.Pieces(id)
	var sum int64
	for _, piece := range pieces {
		if piece.Offset < ends[piece.Lane] || piece.Offset%form.Align != 0 || piece.Bytes%form.Align != 0 {
			t.Fatalf("%v: piece %+v overlaps %d or is not aligned to %d", id, piece, ends[piece.Lane], form.Align)
		}
		if len(pieces) > 1 && (piece.Bytes < 256<<10 || form.Align < 4096) {
			t.Fatalf("%v: cut into a piece of %d bytes at alignment %d", id, piece.Bytes, form.Align)
		}
		ends[piece.Lane] = piece.Offset + piece.Bytes
		sum += piece.Bytes
	}
	if sum != form.Bytes {
		t.Fatalf("%v: got pieces of %d bytes, want %d", id, sum, form.Bytes)
	}
	var end int64
	for _, proj := range form.Projections {
		if proj.Offset < end || proj.Offset%64 != 0 || (proj.Bytes >= 256<<10 && proj.Offset%form.Align != 0) {
			t.Fatalf("%v: projection %s of %d bytes at %d after %d", id, proj.Name, proj.Bytes, proj.Offset, end)
		}
		end = proj.Offset + proj.Bytes
	}
}

func TestCoactivationOrder(t *testing.T) {
	for _, test := range []struct {
		name    string
		experts int
		pairs   map[[2]int]uint64
		want    []int32
	}{
		{"none", 0, nil, nil},
		{"one", 1, nil, []int32{0}},
		{"nothing known", 4, nil, []int32{0, 1, 2, 3}},
		{"chain", 5, map[[2]int]uint64{{2, 4}: 9, {0, 4}: 5, {1, 2}: 4, {0, 3}: 3}, []int32{1, 2, 4, 0, 3}},
		{"tie goes to the lowest", 4, map[[2]int]uint64{{0, 3}: 5, {1, 3}: 2, {2, 3}: 2}, []int32{0, 3, 1, 2}},
		{"stranger comes last", 4, map[[2]int]uint64{{2, 3}: 5, {1, 3}: 2}, []int32{2, 3, 1, 0}},
	} {
		together := func(a, b int) uint64 { return test.pairs[[2]int{min(a, b), max(a, b)}] }
		if got := layout.CoactivationOrder(test.experts, together); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
