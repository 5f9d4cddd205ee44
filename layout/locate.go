package layout

// window is the aligned range around a range of a lane.
type window struct {
	offset, bytes int64
	skip          int64 // from the window's start to the range
}

func newWindow(offset, bytes, align int64) window {
	start := alignDown(offset, align)
	return window{offset: start, bytes: alignUp(offset+bytes, align) - start, skip: offset - start}
}

// need is how many of the window's bytes lie before the end of a file of this size.
func (w window) need(size int64) int64 { return min(w.bytes, size-w.offset) }

// placeRow writes into p what must be read for a row, with each lane read in
// multiples of its own alignment.
//
// A record in one piece may lie off its lane's alignment; the window then
// brings a little more on both sides, and the record starts inside the slot:
//
//	lane  ─┬──────┬────────────────────┬────┬─
//	       │ skip │ record             │    │
//	slot   0──────┴────────────────────┴────Bytes
//
// The pieces of a cut record must meet in the slot, so their lanes keep the
// record's alignment (OpenStore reads others buffered) and the windows have no slack.
func (t *table) placeRow(row int, aligns, sizes []int64, p *Placement) {
	p.Reads, p.Parts = p.Reads[:0], p.Parts[:0]
	var end, skip int64
	for lane, piece := range t.piecesOf(row) {
		if piece.Bytes == 0 {
			continue
		}
		w := newWindow(piece.Offset, piece.Bytes, aligns[lane])
		p.Reads = append(p.Reads, Read{Lane: lane, Offset: w.offset, Bytes: w.bytes, At: end, Need: w.need(sizes[lane])})
		if end == 0 {
			skip = w.skip
		}
		end += w.bytes
	}
	p.Bytes = alignUp(end, placementAlign)
	form, sums := t.form(row), t.sumsOf(row)
	for i := range form.Projections {
		fp := &form.Projections[i]
		p.Parts = append(p.Parts, Part{At: skip + fp.Offset, Bytes: fp.Bytes, Sum: sums[i], Summed: true})
	}
}

// unfitLanes marks the lanes whose alignment is larger than that of a cut
// record of which they hold a piece.
func (t *table) unfitLanes(aligns []int64) []bool {
	unfit := make([]bool, t.lanes)
	for row := range t.order {
		form := t.form(row)
		for lane, piece := range t.piecesOf(row) {
			if piece.Bytes > 0 && piece.Bytes < form.Bytes && aligns[lane] > form.Align {
				unfit[lane] = true
			}
		}
	}
	return unfit
}
