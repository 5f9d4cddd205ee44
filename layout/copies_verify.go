package layout

import "errors"

// copied lists the rows of which a copy is open, and the gaps between the copies,
// by the scanner's numbers of files.
func (s *scanner) copied() (rows []int, gaps []gap) {
	if s.copies == nil {
		return nil, nil
	}
	for row := range s.table.rows() {
		for _, place := range s.copies.of(row) {
			if s.files[s.table.lanes+int(place.Lane)].file != nil {
				rows = append(rows, row)
				break
			}
		}
	}
	for _, g := range s.copies.gaps(s.table) {
		if g.lane += s.table.lanes; s.files[g.lane].file != nil {
			gaps = append(gaps, g)
		}
	}
	return rows, gaps
}

// scannedCopies is how many bytes of copies a scanner reads, beside the headers.
func (s *Store) scannedCopies() (total int64) {
	for i, lane := range s.open.lanes {
		if lane.Copies != nil {
			total += s.copies.sizes[i] - copyHeaderBytes
		}
	}
	return total
}

// copyDamages are the findings that kept copies from being opened.
func (s *Store) copyDamages() (found []Damage) {
	for _, f := range s.copyFaults {
		d := Damage{ID: ExpertID{Layer: -1, Index: -1}, Lane: f.path, Reason: f.String()}
		var damage *CorruptError
		if errors.As(f.err, &damage) {
			d.Offset, d.Reason = damage.Offset, damage.Reason
		}
		found = append(found, d)
	}
	return found
}
