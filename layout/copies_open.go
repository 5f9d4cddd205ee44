package layout

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// CopiesState tells of the second copies of a store.
type CopiesState struct {
	Records int          // records of which every piece has a copy that can be read
	Bytes   int64        // of the files of copies that are open, and of their index
	Lanes   []LaneCopies // one for each lane; nil for a store without copies
	// Reason says why copies that the store was built with are not used, all or
	// those of some lanes. Empty if all are, or if it has none.
	Reason string
}

// LaneCopies are the copies that lie beside one lane. The zero value: none, or
// none that can be used.
type LaneCopies struct {
	Path   string
	Bytes  int64
	Pieces int
}

// copyFault is why a file of copies, or their index, is not used.
type copyFault struct {
	path string
	what string // is not used
	err  error
}

func (f copyFault) String() string {
	return f.what + " are not used: " + strings.TrimPrefix(f.err.Error(), "layout: ")
}

// Copies tells which of the store's second copies are used. A store is whole
// without them: what is missing or damaged of them is told, and not used.
func (s *Store) Copies() CopiesState {
	var reasons []string
	for _, f := range s.copyFaults {
		reasons = append(reasons, f.String())
	}
	out := CopiesState{Reason: strings.Join(reasons, "; ")}
	if s.copies == nil {
		return out
	}
	out.Bytes = copiesSize(len(s.sizes), len(s.copies.places))
	out.Lanes = make([]LaneCopies, len(s.sizes))
	for i, lane := range s.open.lanes {
		if lane.Copies != nil {
			out.Lanes[i] = LaneCopies{Path: lane.CopiesPath, Bytes: s.copies.sizes[i]}
			out.Bytes += s.copies.sizes[i]
		}
	}
	for row := range s.table.rows() {
		places := s.copies.of(row)
		if len(places) > 0 && !slices.ContainsFunc(places, func(p copyPlace) bool { return !p.Usable }) {
			out.Records++
		}
		for _, p := range places {
			if s.open.lanes[p.Lane].Copies != nil {
				out.Lanes[p.Lane].Pieces++
			}
		}
	}
	return out
}

// openCopies opens the copies that are there and whole. It never fails: a store
// can do without them.
func (s *Store) openCopies(fsys FS, mode Mode) {
	if len(s.sizes) < 2 {
		return
	}
	path := filepath.Join(s.dir, copiesName)
	data, err := readSmall(fsys, path, copiesSize(len(s.sizes), s.table.countPieces()))
	if errors.Is(err, fs.ErrNotExist) {
		s.findStrayCopies(fsys, path)
		return
	}
	if err == nil {
		s.copies, err = decodeCopies(path, data, s.manifest.ID, s.table)
	}
	if err != nil {
		s.copyFaults = append(s.copyFaults, copyFault{path, "copies", err})
		return
	}
	s.copyAligns = make([]int64, len(s.sizes))
	for i, size := range s.copies.sizes {
		if size == 0 {
			continue
		}
		path, err := s.openCopyFile(fsys, i, mode, trailerOf(data))
		if err == nil {
			err = s.fitCopies(fsys, i)
		}
		if err != nil {
			s.copyFaults = append(s.copyFaults, copyFault{path, fmt.Sprintf("copies beside lane %d", i), err})
		}
	}
	s.markUsable()
}

// findStrayCopies tells of copies whose index is gone.
func (s *Store) findStrayCopies(fsys FS, index string) {
	for _, lane := range s.open.lanes {
		path := lane.Path + copySuffix
		if _, err := fsys.Stat(path); err == nil {
			s.copyFaults = append(s.copyFaults, copyFault{index, "copies", fmt.Errorf("%s is there, but %s is missing: build the store again", path, index)})
			return
		}
	}
}

// openCopyFile opens the copies beside a lane, and proves that they belong to the
// index with this trailer. It returns the path too.
func (s *Store) openCopyFile(fsys FS, i int, mode Mode, trailer uint32) (path string, err error) {
	f, path, err := s.findCopyFile(fsys, i, mode)
	if err != nil {
		return path, err
	}
	lane := Lane{Copies: f, CopiesPath: path}
	if got, want := f.Size(), s.copies.sizes[i]; got != want {
		err = corrupt(path, min(got, want), "it has %d bytes, %s says %d", got, copiesName, want)
	} else {
		id, _ := hex.DecodeString(s.manifest.ID) // the manifest has been checked
		err = readCopyHeader(&lane, encodeCopyHeader(i, want, [storeIDBytes]byte(id), trailer))
	}
	if err != nil {
		return path, errors.Join(err, f.Close())
	}
	s.open.lanes[i].Copies, s.open.lanes[i].CopiesPath = f, path
	s.copyAligns[i] = f.Direct().span()
	return path, nil
}

// findCopyFile opens the file beside the lane as it was found, or where the lane
// may lie as well.
func (s *Store) findCopyFile(fsys FS, i int, mode Mode) (f File, path string, err error) {
	first := s.open.lanes[i].Path
	named, elsewhere := s.manifest.lanePath(s.dir, i)
	for _, lane := range []string{first, named, elsewhere} {
		if lane == "" {
			continue
		}
		path = lane + copySuffix
		if f, err = fsys.Open(path, mode); !errors.Is(err, fs.ErrNotExist) {
			return f, path, err
		}
	}
	return nil, first + copySuffix, err
}

// readCopyHeader compares the start of a file of copies with what it must be.
func readCopyHeader(lane *Lane, want []byte) error {
	align := lane.Copies.Direct().span()
	w := newWindow(0, copyHeaderSize, align)
	block := alignedBuffer(w.bytes, max(align, placementAlign))
	n, err := lane.Copies.ReadAt(block, 0)
	if n < len(want) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read %s: %w", lane.CopiesPath, err)
	}
	return checkCopyHeader(lane.CopiesPath, block[:len(want)], want)
}

// fitCopies gives up direct reads of copies that would need a larger alignment
// than they have.
func (s *Store) fitCopies(fsys FS, i int) error {
	lane := &s.open.lanes[i]
	if !s.unfitCopies(i) {
		return nil
	}
	reason := fmt.Sprintf("direct reads of this device need an alignment of %d bytes, the copies have less: build the store with that alignment", s.copyAligns[i])
	_ = lane.Copies.Close() // nothing was written
	f, err := fsys.Open(lane.CopiesPath, Buffered)
	if err != nil {
		lane.Copies, lane.CopiesPath = nil, ""
		return err
	}
	lane.Copies, s.copyAligns[i] = unfitFile{File: f, reason: reason}, f.Direct().span()
	return nil
}

// unfitCopies reports whether a copy beside a lane could be read if only its
// file demanded no alignment.
func (s *Store) unfitCopies(lane int) bool {
	for row := range s.table.rows() {
		for _, place := range s.copies.of(row) {
			if int(place.Lane) == lane && !s.copyFits(row, place, s.copyAligns[lane]) && s.copyFits(row, place, 1) {
				return true
			}
		}
	}
	return false
}

// copyFits reports whether the window around a piece has its like around the copy,
// in a file that demands an alignment.
func (s *Store) copyFits(row int, place copyPlace, align int64) bool {
	p, form := s.table.piecesOf(row)[place.Piece], s.table.form(row)
	shift := place.Offset - p.Offset
	if shift&(align-1) != 0 || (p.Bytes < form.Bytes && align > form.Align) {
		return false // of a cut record's pieces no window may have slack
	}
	w := newWindow(p.Offset, p.Bytes, max(align, s.aligns[place.Piece]))
	return w.offset+shift >= 0 && w.offset+shift+w.need(s.sizes[place.Piece]) <= s.copies.sizes[place.Lane]
}

func (s *Store) markUsable() {
	for row := range s.table.rows() {
		places := s.copies.of(row)
		for i := range places {
			place := &places[i]
			place.Usable = s.open.lanes[place.Lane].Copies != nil && s.copyFits(row, *place, s.copyAligns[place.Lane])
		}
	}
}
