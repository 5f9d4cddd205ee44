package drive

// recommend draws the settings from the cells.
func (p *Profile) recommend() {
	rows := map[int64]float64{} // best rate of a block size
	for _, c := range p.Cells {
		rows[c.BlockBytes] = max(rows[c.BlockBytes], c.BytesPerSecond)
		p.BytesPerSecond = max(p.BytesPerSecond, c.BytesPerSecond)
	}
	p.LatencySeconds = p.Cells[0].P50Micros / 1e6 // the first is the smallest block, alone
	for _, c := range p.Cells {
		if row := rows[c.BlockBytes]; row >= enough*p.BytesPerSecond && c.BytesPerSecond >= enough*row {
			p.BlockBytes, p.Depth = c.BlockBytes, c.Depth
			return
		}
	}
}

// Cell returns the cell of a block size and depth, if it was measured.
func (p *Profile) Cell(block int64, depth int) (Cell, bool) {
	for _, c := range p.Cells {
		if c.BlockBytes == block && c.Depth == depth {
			return c, true
		}
	}
	return Cell{}, false
}
