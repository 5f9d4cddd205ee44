package layout

import "fmt"

// piece is the part of a record that one lane holds; no bytes: none.
type piece struct {
	Offset, Bytes int64
}

// table says where every record lies: the index of a store in flat form. Rows
// are in file order, layer by layer.
type table struct {
	shape  Shape
	forms  []Form
	layers []int    // the form of each layer
	lanes  int      // pieces of a row
	width  int      // checksums of a row: the projections of the largest form
	order  []int32  // row → expert of its layer
	rowOf  []int32  // ordinal of an expert → row
	pieces []piece  // rows × lanes
	sums   []uint32 // rows × width; nil in a plan
}

func (t *table) rows() int { return len(t.order) }

func (t *table) id(row int) ExpertID {
	return ExpertID{Layer: int32(row / t.shape.Experts), Index: t.order[row]}
}

func (t *table) form(row int) *Form { return &t.forms[t.layers[row/t.shape.Experts]] }

func (t *table) piecesOf(row int) []piece { return t.pieces[row*t.lanes : (row+1)*t.lanes] }

func (t *table) sumsOf(row int) []uint32 { return t.sums[row*t.width : (row+1)*t.width] }

// findWidth is the number of projections of the largest form.
func findWidth(forms []Form) int {
	width := 0
	for i := range forms {
		width = max(width, len(forms[i].Projections))
	}
	return width
}

// indexRows fills rowOf, and reports the first row that names an expert its
// layer does not have or has already had.
func (t *table) indexRows() (int, error) {
	t.rowOf = make([]int32, len(t.order))
	for i := range t.rowOf {
		t.rowOf[i] = -1
	}
	for row := range t.order {
		id := t.id(row)
		if !t.shape.Contains(id) {
			return row, fmt.Errorf("%v is not in a model of %d layers with %d experts", id, t.shape.Layers, t.shape.Experts)
		}
		ordinal := t.shape.Ordinal(id)
		if t.rowOf[ordinal] >= 0 {
			return row, fmt.Errorf("%v comes twice", id)
		}
		t.rowOf[ordinal] = int32(row)
	}
	return 0, nil
}

// checkPieces proves that every record is whole, that nothing overlaps and
// that all of it lies inside its lane. It returns the first bad row.
func (t *table) checkPieces(sizes []int64) (int, error) {
	ends := make([]int64, t.lanes)
	for row := range t.order {
		form := t.form(row)
		used, sum := 0, int64(0)
		for lane, p := range t.piecesOf(row) {
			if p.Bytes == 0 && p.Offset == 0 {
				continue
			}
			if p.Bytes <= 0 || p.Bytes > form.Bytes || p.Offset < 0 || p.Offset > sizes[lane]-p.Bytes {
				return row, fmt.Errorf("%v: %d bytes at %d of lane %d, which has %d", t.id(row), p.Bytes, p.Offset, lane, sizes[lane])
			}
			if p.Offset < ends[lane] {
				return row, fmt.Errorf("%v: offset %d of lane %d lies in the record before, which ends at %d", t.id(row), p.Offset, lane, ends[lane])
			}
			if p.Offset%form.Align != 0 || p.Bytes%form.Align != 0 {
				return row, fmt.Errorf("%v: %d bytes at %d of lane %d are not aligned to %d", t.id(row), p.Bytes, p.Offset, lane, form.Align)
			}
			if p.Bytes < form.Bytes && (p.Bytes < unitBytes || form.Align < cutAlign) {
				return row, fmt.Errorf("%v: %d bytes on lane %d are too few for a cut record", t.id(row), p.Bytes, lane)
			}
			ends[lane] = p.Offset + p.Bytes
			used++
			sum += p.Bytes
		}
		if sum != form.Bytes {
			return row, fmt.Errorf("%v: %d bytes in %d pieces, want %d", t.id(row), sum, used, form.Bytes)
		}
	}
	return 0, nil
}

// gap is a range of a lane that no record covers.
type gap struct {
	lane          int
	offset, bytes int64
}

// gaps lists what lies between the records and behind them.
func (t *table) gaps(sizes []int64) []gap {
	var out []gap
	ends := make([]int64, t.lanes)
	for row := range t.order {
		for lane, p := range t.piecesOf(row) {
			if p.Bytes == 0 {
				continue
			}
			if p.Offset > ends[lane] {
				out = append(out, gap{lane, ends[lane], p.Offset - ends[lane]})
			}
			ends[lane] = p.Offset + p.Bytes
		}
	}
	for lane, size := range sizes {
		if size > ends[lane] {
			out = append(out, gap{lane, ends[lane], size - ends[lane]})
		}
	}
	return out
}

// orderOf copies the experts of a layer as they lie in its stripe.
func (t *table) orderOf(layer int) []int32 {
	n := t.shape.Experts
	return append([]int32(nil), t.order[layer*n:(layer+1)*n]...)
}
