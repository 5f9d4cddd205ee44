package layout

import "fmt"

const (
	copiesName = "copies.bin" // in the store's folder: where the copies lie
	copySuffix = ".copies"    // the copies that a lane's device holds, beside the lane
)

const (
	// copyAlign: a copy keeps its piece's offset modulo this, or modulo the
	// record's alignment if that is larger, so that windows with slack around the
	// piece have their like around the copy.
	copyAlign = 4096
	// copyWindow is the largest alignment of windows that stay inside the file.
	copyWindow = 64 << 10
)

// CopiesOptions say which records get second copies. A copy of a piece lies on
// another lane than the piece, so that copies need at least two lanes. Reads that
// fail or are late on one lane can then be answered from another.
type CopiesOptions struct {
	// Bytes is the space that all copies may take, padding and their index
	// included. 0 means no copies.
	Bytes int64
	// Heat says how hot an expert is, in any unit; the hottest get copies. Equal
	// ones, and all if it is nil, get them evenly over the layers.
	Heat func(ExpertID) float64
}

// copyPlace is where the copy of one piece lies.
type copyPlace struct {
	Offset int64 // in the file of copies beside Lane
	Piece  int32 // lane of the piece
	Lane   int32 // lane whose device holds the copy, never that of the piece
	Usable bool  // the file is open and its alignment can be kept; false in a plan
}

// copyTable says where all copies lie. A record has copies of all its pieces or none.
type copyTable struct {
	first  []int32     // row → its first place; one more at the end
	places []copyPlace // by row, and for a row by lane of the piece
	sizes  []int64     // of each lane's file of copies; 0: it has none
}

// of lists the copies of a row, none for a nil table.
func (c *copyTable) of(row int) []copyPlace {
	if c == nil {
		return nil
	}
	return c.places[c.first[row]:c.first[row+1]]
}

// sumFirst turns the number of copies of each row, kept one place on, into places.
func (c *copyTable) sumFirst() {
	for row := range len(c.first) - 1 {
		c.first[row+1] += c.first[row]
	}
}

// copyBytes is the size of the files of so many copies, their index included.
func copyBytes(sizes []int64, copies int) int64 {
	total := copiesSize(len(sizes), copies)
	for _, size := range sizes {
		total += size
	}
	return total
}

// countPieces is how many pieces all records have.
func (t *table) countPieces() (n int) {
	for _, p := range t.pieces {
		if p.Bytes > 0 {
			n++
		}
	}
	return n
}

func copyStep(form *Form) int64 { return max(form.Align, copyAlign) }

// copyStart is the first place at or behind end for the copy of a piece. No window
// around it may begin before the file does.
func copyStart(end int64, p piece, step int64) int64 {
	from := max(end, copyHeaderSize, p.Offset%copyWindow)
	return from + (p.Offset-from)&(step-1)
}

// copyEnd is where the largest window around a copy ends.
func copyEnd(at int64, p piece) int64 {
	return at + alignUp(p.Offset+p.Bytes, copyWindow) - p.Offset
}

// check proves the rules of the format, which keep every window of every copy
// inside its file. It returns the first bad place.
func (c *copyTable) check(t *table) (int, error) {
	ends := make([]int64, t.lanes)
	for row := range t.rows() {
		pieces, places, i := t.piecesOf(row), c.of(row), 0
		for lane, p := range pieces {
			if p.Bytes == 0 || len(places) == 0 {
				continue
			}
			at := int(c.first[row]) + i
			if i == len(places) || int(places[i].Piece) != lane {
				return min(at, len(c.places)-1), fmt.Errorf("%v: its piece on lane %d has no copy, others have", t.id(row), lane)
			}
			if err := c.checkPlace(places[i], p, copyStep(t.form(row)), ends); err != nil {
				return at, fmt.Errorf("%v: %w", t.id(row), err)
			}
			ends[places[i].Lane] = places[i].Offset + p.Bytes
			i++
		}
		if i < len(places) {
			return int(c.first[row]) + i, fmt.Errorf("%v: a copy of a piece on lane %d, which has none", t.id(row), places[i].Piece)
		}
	}
	return 0, nil
}

func (c *copyTable) checkPlace(place copyPlace, p piece, step int64, ends []int64) error {
	lane := place.Lane
	if lane < 0 || int(lane) >= len(c.sizes) || lane == place.Piece {
		return fmt.Errorf("lane %d cannot hold a copy of what lies on lane %d of %d", lane, place.Piece, len(c.sizes))
	}
	end := max(ends[lane], copyHeaderSize)
	if place.Offset < end || place.Offset < p.Offset%copyWindow || place.Offset > c.sizes[lane] || copyEnd(place.Offset, p) > c.sizes[lane] {
		return fmt.Errorf("a copy of %d bytes at %d of lane %d's copies, where %d to %d are free", p.Bytes, place.Offset, lane, end, c.sizes[lane])
	}
	if (place.Offset-p.Offset)&(step-1) != 0 {
		return fmt.Errorf("a copy at %d of a piece at %d, which differ modulo %d", place.Offset, p.Offset, step)
	}
	return nil
}

// gaps lists what no copy covers, the rest of the header's block included.
func (c *copyTable) gaps(t *table) []gap {
	var out []gap
	ends := make([]int64, t.lanes)
	for lane := range ends {
		ends[lane] = copyHeaderBytes
	}
	for row := range t.rows() {
		for _, place := range c.of(row) {
			if end := ends[place.Lane]; place.Offset > end {
				out = append(out, gap{int(place.Lane), end, place.Offset - end})
			}
			ends[place.Lane] = place.Offset + t.piecesOf(row)[place.Piece].Bytes
		}
	}
	for lane, size := range c.sizes {
		if size > ends[lane] {
			out = append(out, gap{lane, ends[lane], size - ends[lane]})
		}
	}
	return out
}
