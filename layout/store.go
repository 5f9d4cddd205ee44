package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Store is an open store. It is safe for concurrent use; after Close, reads of
// its lanes fail, while everything else goes on answering.
type Store struct {
	fsys     FS
	dir      string
	manifest *Manifest
	table    *table
	open     laneSet
	lanesView
	copyFaults []copyFault
	records    [][]Projection
	slots      []int64 // SlotBytes of each layer
}

var _ Source = (*Store)(nil)

// OpenStore opens the store in a folder, and its lanes with the given mode.
// It reads the manifest and the index, not the records.
//
// The error is an ErrNotStore for a folder without a manifest of ours, an
// ErrVersion for a format this package does not know, a *CorruptError for
// damage, and names the path of a lane that is missing. A lane named by an
// absolute path that does not exist is looked for by its file name in dir.
// Second copies that are missing or damaged are no error: Copies tells.
func OpenStore(fsys FS, dir string, mode Mode) (*Store, error) {
	s, err := openMeta(fsys, dir)
	if err != nil {
		return nil, err
	}
	if err := s.openLanes(fsys, mode); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.openCopies(fsys, mode)
	s.measureSlots()
	return s, nil
}

// openMeta reads manifest and index.
func openMeta(fsys FS, dir string) (*Store, error) {
	path := filepath.Join(dir, manifestName)
	data, err := readSmall(fsys, path, maxManifestBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("layout: open store %s: %w: %w", dir, ErrNotStore, err)
	} else if err != nil {
		return nil, fmt.Errorf("layout: open store: %w", err)
	}
	m, err := decodeManifest(path, data)
	if err != nil {
		return nil, err
	}
	s := &Store{fsys: fsys, dir: dir, manifest: m}
	path = filepath.Join(dir, indexName)
	t := m.table()
	data, err = readSmall(fsys, path, t.indexSize())
	if err != nil {
		return nil, fmt.Errorf("layout: open store: %w", err)
	}
	if s.table, err = decodeIndex(path, data, m); err != nil {
		return nil, err
	}
	return s, nil
}

// readSmall reads a whole file, which must not be larger than limit.
func readSmall(fsys FS, path string, limit int64) ([]byte, error) {
	f, err := fsys.Open(path, Buffered)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Size() > limit {
		return nil, corrupt(path, limit, "has %d bytes, want at most %d", f.Size(), limit)
	}
	data := make([]byte, f.Size())
	if err := readFull(f, data, 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func (s *Store) openLanes(fsys FS, mode Mode) error {
	s.sizes = s.manifest.laneSizes()
	s.aligns = make([]int64, len(s.sizes))
	for i := range s.manifest.Lanes {
		lane, err := s.openLane(fsys, i, mode)
		if err != nil {
			return err
		}
		s.open.lanes = append(s.open.lanes, lane)
		s.aligns[i] = lane.File.Direct().span()
		if got := lane.File.Size(); got != s.sizes[i] {
			return corrupt(lane.Path, min(got, s.sizes[i]), "lane has %d bytes, the manifest says %d", got, s.sizes[i])
		}
	}
	for i, unfit := range s.table.unfitLanes(s.aligns) {
		if !unfit {
			continue
		}
		if err := s.reopenBuffered(fsys, i); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) openLane(fsys FS, i int, mode Mode) (Lane, error) {
	path, elsewhere := s.manifest.lanePath(s.dir, i)
	f, err := fsys.Open(path, mode)
	if errors.Is(err, fs.ErrNotExist) && elsewhere != "" {
		if f2, err2 := fsys.Open(elsewhere, mode); err2 == nil {
			return Lane{Path: elsewhere, File: f2}, nil
		}
	}
	if err != nil {
		return Lane{}, fmt.Errorf("layout: open store %s: lane %d at %s: %w: attach its device, put the file or a link to it there, or build the store again",
			s.dir, i, path, err)
	}
	return Lane{Path: path, File: f}, nil
}

// reopenBuffered gives up direct reads of a lane that would need a larger
// alignment than the pieces of its cut records have.
func (s *Store) reopenBuffered(fsys FS, i int) error {
	lane := &s.open.lanes[i]
	reason := fmt.Sprintf("direct reads of this device need an alignment of %d bytes, the cut records have less: build the store with that alignment", s.aligns[i])
	f, err := fsys.Open(lane.Path, Buffered)
	if err != nil {
		return fmt.Errorf("layout: open store %s: %w", s.dir, err)
	}
	old := lane.File
	lane.File = unfitFile{File: f, reason: reason}
	s.aligns[i] = f.Direct().span()
	if err := old.Close(); err != nil {
		return fmt.Errorf("layout: open store %s: %w", s.dir, err)
	}
	return nil
}

// unfitFile is a buffered file with the store's reason for it.
type unfitFile struct {
	File
	reason string
}

func (u unfitFile) FallbackReason() string { return u.reason }
func (u unfitFile) Engine() string         { return Engine(u.File) }

func (u unfitFile) ReadVAt(bufs [][]byte, off int64) (int, error) {
	return ReadV(u.File, bufs, off)
}

func (s *Store) measureSlots() {
	shape := s.manifest.Shape
	s.slots = make([]int64, shape.Layers)
	var p Placement
	for row := range s.table.rows() {
		s.table.placeRow(row, &s.lanesView, &p)
		layer := row / shape.Experts
		s.slots[layer] = max(s.slots[layer], p.Bytes)
	}
	forms := make([][]Projection, len(s.manifest.Forms))
	for i := range forms {
		forms[i] = s.manifest.Forms[i].record()
	}
	s.records = make([][]Projection, shape.Layers)
	for l := range s.records {
		s.records[l] = forms[s.manifest.Layers[l]]
	}
}

// Shape says how many layers and experts the store has.
func (s *Store) Shape() Shape { return s.manifest.Shape }

// Lanes are the open lanes, with the copies beside them that are used; the slice
// and its files belong to the store.
func (s *Store) Lanes() []Lane { return s.open.lanes }

// Record describes the experts of a layer from 0 to Layers-1. The slice is
// shared: do not change it.
func (s *Store) Record(layer int) []Projection { return s.records[layer] }

// SlotBytes is the largest Placement.Bytes of a layer from 0 to Layers-1.
func (s *Store) SlotBytes(layer int) int64 { return s.slots[layer] }

// Manifest is what the store says about itself. It is shared: do not change it.
func (s *Store) Manifest() *Manifest { return s.manifest }

// Dir is the folder the store was opened from.
func (s *Store) Dir() string { return s.dir }

// Order is a copy of the order in which the experts of a layer from 0 to
// Layers-1 lie in its stripe.
func (s *Store) Order(layer int) []int32 { return s.table.orderOf(layer) }

// Locate writes into p what must be read for an expert. It allocates only
// while p's slices are too short. The error is an ErrUnknownExpert.
func (s *Store) Locate(id ExpertID, p *Placement) error {
	if !s.manifest.Shape.Contains(id) {
		return unknownExpert(id, s.manifest.Shape)
	}
	s.table.placeRow(int(s.table.rowOf[s.manifest.Shape.Ordinal(id)]), &s.lanesView, p)
	return nil
}

func unknownExpert(id ExpertID, shape Shape) error {
	return fmt.Errorf("layout: locate: %w: %v of %d layers with %d experts", ErrUnknownExpert, id, shape.Layers, shape.Experts)
}

// Close closes the lanes and returns the first error. A second call does no
// more than return the same.
func (s *Store) Close() error { return s.open.close("store") }
