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

// lanesView is what must be known of the open lanes to read from them.
type lanesView struct {
	aligns []int64 // of each lane's reads
	sizes  []int64 // of each lane
	copies *copyTable
	// copyAligns are those of the reads of the copies beside each lane.
	copyAligns []int64
}

// placeRow writes into p what must be read for a row, with each lane read in
// multiples of its own alignment, and of that of the lane with the copy.
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
func (t *table) placeRow(row int, v *lanesView, p *Placement) {
	p.Reads, p.Parts = p.Reads[:0], p.Parts[:0]
	var end, skip int64
	copies := v.copies.of(row)
	for lane, piece := range t.piecesOf(row) {
		if piece.Bytes == 0 {
			continue
		}
		align := v.aligns[lane]
		var second copyPlace
		if len(copies) > 0 { // of all pieces of a record, or of none
			second, copies = copies[0], copies[1:]
		}
		if second.Usable {
			align = max(align, v.copyAligns[second.Lane])
		}
		w := newWindow(piece.Offset, piece.Bytes, align)
		r := Read{Lane: lane, Offset: w.offset, Bytes: w.bytes, At: end, Need: w.need(v.sizes[lane])}
		if second.Usable {
			r.Copy = Copy{Ok: true, Lane: int(second.Lane), Offset: w.offset + second.Offset - piece.Offset}
		}
		p.Reads = append(p.Reads, r)
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
