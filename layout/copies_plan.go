package layout

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
)

// Copies lists the copies of an expert's pieces, each with the lane beside which
// its file lies, in the order of Pieces; nil if the expert has none.
func (p *Plan) Copies(id ExpertID) []Piece {
	if !p.Shape.Contains(id) {
		return nil
	}
	var out []Piece
	row := int(p.table.rowOf[p.Shape.Ordinal(id)])
	for _, place := range p.copies.of(row) {
		out = append(out, Piece{Lane: int(place.Lane), Offset: place.Offset, Bytes: p.table.piecesOf(row)[place.Piece].Bytes})
	}
	return out
}

// planCopies chooses the hottest records that fit, and places their copies.
func (p *Plan) planCopies(opts CopiesOptions) error {
	if opts.Bytes == 0 {
		return nil
	}
	if opts.Bytes < 0 {
		return fmt.Errorf("layout: %w: copies of %d bytes, want 0 or more", ErrPlan, opts.Bytes)
	}
	if len(p.Lanes) < 2 {
		return fmt.Errorf("layout: %w: copies need at least two lanes, so that none lies where its original does: name another lane", ErrPlan)
	}
	if err := p.checkCopyNames(); err != nil {
		return err
	}
	order, err := p.hottest(opts.Heat)
	if err != nil {
		return err
	}
	c := newCopyPlanner(&p.table, p.Lanes, order)
	most := c.assign(opts.Bytes)
	n := sort.Search(most, func(n int) bool { return !c.fits(n+1, opts.Bytes) })
	if n == 0 {
		return fmt.Errorf("layout: %w: copies of %d bytes are too few: the hottest record alone takes %d: give more, or none",
			ErrPlan, opts.Bytes, c.bytes(1))
	}
	p.copies = c.table(n)
	p.CopiedRecords, p.CopyBytes = n, copyBytes(p.copies.sizes, len(p.copies.places))
	for i := range p.Lanes {
		p.Lanes[i].CopySize = p.copies.sizes[i]
	}
	if _, err := p.copies.check(&p.table); err != nil {
		return fmt.Errorf("layout: %w: copies: %w", ErrPlan, err)
	}
	return nil
}

// checkCopyNames: no lane may have the name of another one's copies.
func (p *Plan) checkCopyNames() error {
	for _, lane := range p.Lanes {
		name := filepath.Base(lane.Path) + copySuffix
		if slices.ContainsFunc(p.Lanes, func(o PlanLane) bool { return filepath.Base(o.Path) == name }) {
			return fmt.Errorf("layout: %w: a lane has the file name %s, which the copies beside lane %s need", ErrPlan, name, lane.Path)
		}
	}
	return nil
}

// hottest lists all rows by heat; those of one heat layer by layer, the first of
// each stripe, then the second of each, and so on.
func (p *Plan) hottest(heat func(ExpertID) float64) ([]int32, error) {
	order := make([]int32, p.table.rows())
	heats := make([]float64, len(order))
	for row := range order {
		order[row] = int32(row)
		if heat == nil {
			continue
		}
		if heats[row] = heat(p.table.id(row)); math.IsNaN(heats[row]) {
			return nil, fmt.Errorf("layout: %w: the heat of %v is not a number", ErrPlan, p.table.id(row))
		}
	}
	n := int32(p.Shape.Experts)
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(heats[b], heats[a]), cmp.Compare(a%n, b%n), cmp.Compare(a, b))
	})
	return order, nil
}

// copyPlanner places copies of the first rows of an order.
type copyPlanner struct {
	t       *table
	order   []int32
	rank    []int32   // row → its place in the order
	holders []int8    // as table.pieces: the lane that gets the copy
	spread  *spreader // of the copies only
}

func newCopyPlanner(t *table, lanes []PlanLane, order []int32) *copyPlanner {
	c := &copyPlanner{t: t, order: order, rank: make([]int32, len(order)), holders: make([]int8, len(t.pieces)), spread: newSpreader(lanes)}
	for i, row := range order {
		c.rank[row] = int32(i)
	}
	return c
}

// assign chooses lanes for copies, the hottest record first, so that those of the
// first n records are the same for every n. It returns how many can fit at most.
func (c *copyPlanner) assign(budget int64) int {
	var used int64
	for i, row := range c.order {
		for lane, p := range c.t.piecesOf(int(row)) {
			if p.Bytes == 0 {
				continue
			}
			holder := c.holder(lane, p.Bytes, c.t.form(int(row)))
			c.holders[int(row)*c.t.lanes+lane] = int8(holder)
			c.spread.loads[holder] += p.Bytes
			used += p.Bytes
		}
		if used > budget {
			return i
		}
	}
	return len(c.order)
}

// holder is the lane for the copy of a piece: of the others those that read it
// about as fast as the fastest reads the whole record, if there are any, and of
// these the least loaded with copies.
func (c *copyPlanner) holder(lane int, bytes int64, form *Form) int {
	s := c.spread
	others := s.able(func(other int) bool {
		return other != lane && bytes*s.fastest <= wholeSlack*form.Bytes*s.weights[other]
	})
	if len(others) == 0 {
		others = s.able(func(other int) bool { return other != lane })
	}
	return s.leastLoaded(others, bytes)
}

// lay places the copies of the first n records: in the order of the rows, so that
// neighbours stay neighbours. It returns the sizes of the files and the number of
// copies. More records never take less space. put may be nil.
func (c *copyPlanner) lay(n int, put func(row int, place copyPlace)) (sizes []int64, pieces int) {
	sizes = make([]int64, c.t.lanes)
	ends := make([]int64, c.t.lanes)
	for row := range c.t.rows() {
		if int(c.rank[row]) >= n {
			continue
		}
		for lane, p := range c.t.piecesOf(row) {
			if p.Bytes == 0 {
				continue
			}
			holder := c.holders[row*c.t.lanes+lane]
			at := copyStart(ends[holder], p, copyStep(c.t.form(row)))
			ends[holder] = at + p.Bytes
			sizes[holder] = max(sizes[holder], alignUp(copyEnd(at, p), laneAlign))
			pieces++
			if put != nil {
				put(row, copyPlace{Offset: at, Piece: int32(lane), Lane: int32(holder)})
			}
		}
	}
	return sizes, pieces
}

// bytes is what the copies of the first n records take.
func (c *copyPlanner) bytes(n int) int64 { return copyBytes(c.lay(n, nil)) }

func (c *copyPlanner) fits(n int, budget int64) bool {
	sizes, pieces := c.lay(n, nil)
	return copyBytes(sizes, pieces) <= budget && slices.Max(sizes) <= MaxLaneBytes
}

// table is the table of the first n records' copies.
func (c *copyPlanner) table(n int) *copyTable {
	out := &copyTable{first: make([]int32, c.t.rows()+1)}
	out.sizes, _ = c.lay(n, func(row int, place copyPlace) {
		out.places = append(out.places, place)
		out.first[row+1]++
	})
	out.sumFirst()
	return out
}
