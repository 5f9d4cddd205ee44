package layout

import (
	"fmt"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// LaneSpec is one lane of a store to be planned.
type LaneSpec struct {
	// Path is the lane's file. Empty means "lane-N.bin" in the store's folder;
	// a plain file name lies in the store's folder too. A lane on another device
	// is named by an absolute path whose folder exists. The file names of all
	// lanes must differ.
	Path string
	// Weight is the share of the store that the lane gets in relation to the
	// other lanes, usually its measured bandwidth. 0 means 1. A lane gets less, or
	// nothing, where reading its piece would take longer than reading the whole
	// record from the fastest lane; whole records go to lanes of at least half the
	// largest weight.
	Weight float64
}

// PlanOptions say how a store is to be laid out. The zero value is one lane
// with automatic alignment and experts in the order of their index.
type PlanOptions struct {
	// Align is the alignment of records in bytes, a power of two from 512 to
	// 2 MiB. 0 means the largest of 4096, 2048, 1024 and 512 whose padding stays
	// at or under 1 % of the tensor bytes, or else 512.
	Align int64
	// Lanes are the files that the records are spread over; nil means one.
	Lanes []LaneSpec
	// Order is the order of the experts in each layer's stripe, such as
	// CoactivationOrder returns. nil, or nil for a layer, means by index.
	Order [][]int32
	// Copies are second copies of some records; the zero value is none.
	Copies CopiesOptions
}

// Plan says where every byte of a store will lie. It is made by PlanStore and
// not changed afterwards, so that it may be shared.
type Plan struct {
	Shape  Shape
	Align  int64  // the alignment chosen
	Forms  []Form // the distinct forms of records
	Layers []int  // the form of each layer
	Lanes  []PlanLane
	// DataBytes are the tensor bytes of all experts, PaddingBytes what the
	// alignment adds. Together they are the sizes of all lanes.
	DataBytes, PaddingBytes int64
	// Ordered reports that Options.Order gave an order for at least one layer.
	Ordered bool
	// CopiedRecords have a second copy. CopyBytes is what the copies take, padding
	// and their index included; the other sums do not count it.
	CopiedRecords int
	CopyBytes     int64

	table  table
	copies *copyTable // nil: none
}

// PlanLane is one lane of a plan.
type PlanLane struct {
	Path   string // as LaneSpec.Path, filled in
	Weight float64
	Size   int64 // bytes; 0 for a lane that gets nothing
	// CopySize is the size of the file of copies beside the lane, 0 if it has none.
	CopySize int64
}

// Piece is the part of a record that one lane holds.
type Piece struct {
	Lane          int
	Offset, Bytes int64
}

// Bytes is the size of all lanes.
func (p *Plan) Bytes() int64 { return p.DataBytes + p.PaddingBytes }

// Order is a copy of the order in which the experts of a layer lie in its stripe.
func (p *Plan) Order(layer int) []int32 { return p.table.orderOf(layer) }

// Pieces lists the pieces of an expert's record in record order; it is nil for
// an expert that the shape does not contain.
func (p *Plan) Pieces(id ExpertID) []Piece {
	if !p.Shape.Contains(id) {
		return nil
	}
	var out []Piece
	for lane, piece := range p.table.piecesOf(int(p.table.rowOf[p.Shape.Ordinal(id)])) {
		if piece.Bytes > 0 {
			out = append(out, Piece{Lane: lane, Offset: piece.Offset, Bytes: piece.Bytes})
		}
	}
	return out
}

// PlanStore works out the whole layout of a store for a checkpoint. It reads
// and writes nothing, and the same input always gives the same plan. Errors
// are ErrCheckpoint or ErrPlan.
func PlanStore(cp Checkpoint, opts PlanOptions) (*Plan, error) {
	if err := cp.Validate(); err != nil {
		return nil, err
	}
	lanes, err := planLanes(opts.Lanes)
	if err != nil {
		return nil, err
	}
	p := &Plan{Shape: cp.Shape, Align: opts.Align, Lanes: lanes}
	if err := p.planForms(&cp, opts.Align); err != nil {
		return nil, err
	}
	if err := p.planOrder(opts.Order); err != nil {
		return nil, err
	}
	p.placeRecords()
	for i, lane := range p.Lanes {
		if lane.Size > MaxLaneBytes {
			return nil, fmt.Errorf("layout: %w: lane %d needs %d bytes, more than %d: use more lanes", ErrPlan, i, lane.Size, int64(MaxLaneBytes))
		}
	}
	if row, err := p.table.checkPieces(p.laneSizes()); err != nil {
		return nil, fmt.Errorf("layout: %w: row %d: %w", ErrPlan, row, err)
	}
	if err := p.planCopies(opts.Copies); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Plan) laneSizes() []int64 {
	sizes := make([]int64, len(p.Lanes))
	for i, lane := range p.Lanes {
		sizes[i] = lane.Size
	}
	return sizes
}

func planLanes(specs []LaneSpec) ([]PlanLane, error) {
	if len(specs) == 0 {
		specs = []LaneSpec{{}}
	}
	if len(specs) > MaxLanes {
		return nil, fmt.Errorf("layout: %w: %d lanes, want at most %d", ErrPlan, len(specs), MaxLanes)
	}
	lanes := make([]PlanLane, len(specs))
	for i, s := range specs {
		lane := PlanLane{Path: s.Path, Weight: s.Weight}
		if lane.Path == "" {
			lane.Path = fmt.Sprintf("lane-%d.bin", i)
		}
		if lane.Weight == 0 {
			lane.Weight = 1
		}
		if !(lane.Weight > 0 && lane.Weight <= 1e18) {
			return nil, fmt.Errorf("layout: %w: lane %d has weight %v, want more than 0", ErrPlan, i, s.Weight)
		}
		if err := checkNewLanePath(lane.Path); err != nil {
			return nil, fmt.Errorf("layout: %w: lane %d: %w", ErrPlan, i, err)
		}
		name := filepath.Base(lane.Path)
		if slices.ContainsFunc(lanes[:i], func(o PlanLane) bool { return filepath.Base(o.Path) == name }) {
			return nil, fmt.Errorf("layout: %w: two lanes have the file name %s", ErrPlan, name)
		}
		lanes[i] = lane
	}
	return lanes, nil
}

// checkLanePath admits absolute paths and plain file names that are not one of
// the store's own.
func checkLanePath(path string) error {
	if !utf8.ValidString(path) {
		return fmt.Errorf("path %q is not text", path)
	}
	if filepath.IsAbs(path) {
		return nil
	}
	if filepath.Base(path) != path || !filepath.IsLocal(path) || path == "." {
		return fmt.Errorf("path %q is neither absolute nor a plain file name", path)
	}
	switch path {
	case manifestName, indexName, routerName, markerName:
		return errOwnFile(path)
	}
	return nil
}

// checkNewLanePath also keeps the names of files that came after the first
// stores: readers must go on opening those.
func checkNewLanePath(path string) error {
	if path == copiesName {
		return errOwnFile(path)
	}
	return checkLanePath(path)
}

func errOwnFile(path string) error { return fmt.Errorf("path %q is a file of the store's own", path) }

// planForms finds the distinct forms, and the alignment if none is given.
func (p *Plan) planForms(cp *Checkpoint, align int64) error {
	cut := len(p.Lanes) > 1
	if align != 0 {
		if !isPowerOfTwo(align) || align < MinAlign || align > MaxAlign {
			return fmt.Errorf("layout: %w: alignment %d, want 0 or a power of two from %d to %d", ErrPlan, align, MinAlign, MaxAlign)
		}
		p.Forms, p.Layers = formsOf(cp, align, cut)
		return nil
	}
	for align = 4096; ; align /= 2 {
		p.Align = align
		p.Forms, p.Layers = formsOf(cp, align, cut)
		var data, stored int64
		for _, f := range p.Layers {
			data += p.Forms[f].DataBytes()
			stored += p.Forms[f].Bytes
		}
		if (stored-data)*100 <= data || align == MinAlign {
			return nil
		}
	}
}

func formsOf(cp *Checkpoint, align int64, cut bool) ([]Form, []int) {
	var forms []Form
	layers := make([]int, len(cp.Layers))
	for l := range cp.Layers {
		want := cp.Layers[l].projections()
		i := slices.IndexFunc(forms, func(f Form) bool {
			return slices.EqualFunc(f.record(), want, sameProjection)
		})
		if i < 0 {
			i = len(forms)
			forms = append(forms, newForm(want, align, cut))
		}
		layers[l] = i
	}
	return forms, layers
}

func (p *Plan) planOrder(order [][]int32) error {
	if order != nil && len(order) != p.Shape.Layers {
		return fmt.Errorf("layout: %w: order for %d layers, want %d", ErrPlan, len(order), p.Shape.Layers)
	}
	n := p.Shape.Experts
	p.table = table{
		shape: p.Shape, forms: p.Forms, layers: p.Layers,
		lanes: len(p.Lanes), width: findWidth(p.Forms),
		order: make([]int32, p.Shape.Count()),
	}
	for l := range p.Shape.Layers {
		row := p.table.order[l*n : (l+1)*n]
		if order != nil && order[l] != nil {
			if len(order[l]) != n {
				return fmt.Errorf("layout: %w: order of layer %d has %d experts, want %d", ErrPlan, l, len(order[l]), n)
			}
			p.Ordered = true
			copy(row, order[l])
			continue
		}
		for e := range row {
			row[e] = int32(e)
		}
	}
	if _, err := p.table.indexRows(); err != nil {
		return fmt.Errorf("layout: %w: order: %w", ErrPlan, err)
	}
	return nil
}
