package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

const (
	tempSuffix      = ".building"
	manifestReserve = 64 << 10 // space for manifest and folders, to begin with
	maxMarkerBytes  = 8 << 20
	markerWord      = "outrider build"
)

// marker lies in a folder that is being built. It proves that the folder is
// ours, names the temporary files in other folders, and says what is built.
type marker struct {
	Format string   `json:"format"` // "outrider build"
	Lanes  []string `json:"lanes"`  // temporary files outside of the folder
	// Build is what a resumed build must have in common with this one; nil in
	// markers of builders that could not resume.
	Build *buildStamp `json:"build,omitempty"`
}

// buildStamp describes a build in parts, so that a difference can be named.
type buildStamp struct {
	Files   []CheckpointFile `json:"files"`   // paths may change, sizes and headers not
	Model   string           `json:"model"`   // digest of the model, its tensors and its routers
	Records string           `json:"records"` // digest of shape and forms
	Lanes   []ManifestLane   `json:"lanes"`
	Order   string           `json:"order"`  // digest of the places of all records
	Copies  string           `json:"copies"` // digest of the places of all copies
}

func (b *builder) newMarker() (marker, error) {
	m := marker{Format: markerWord, Lanes: []string{}}
	for _, lane := range b.files() {
		if lane.target != "" {
			m.Lanes = append(m.Lanes, lane.temp)
		}
	}
	s := &buildStamp{Files: absoluteFiles(b.cp.Files)}
	for i, lane := range b.plan.Lanes {
		s.Lanes = append(s.Lanes, ManifestLane{Path: b.lanes[i].entry, Weight: lane.Weight, Size: lane.Size})
	}
	s.Order, s.Copies = b.table.digest(), b.plan.copies.digest()
	for _, part := range []struct {
		into *string
		of   any
	}{
		{&s.Model, []any{b.cp.Format, b.cp.Name, b.cp.Architecture, b.cp.RestBytes, b.cp.Layers, b.cp.Routers}},
		{&s.Records, []any{b.plan.Shape, b.plan.Align, b.plan.Forms, b.plan.Layers, b.plan.Ordered}},
	} {
		data, err := json.Marshal(part.of)
		if err != nil {
			return m, fmt.Errorf("layout: build: describe the build: %w", err)
		}
		*part.into = fmt.Sprintf("%x", sha256.Sum256(data))
	}
	m.Build = s
	return m, nil
}

// digest is that of the places of all records.
func (t *table) digest() string {
	h := sha256.New()
	var row []byte
	for i := range t.order {
		row = binary.LittleEndian.AppendUint32(row[:0], uint32(t.order[i]))
		for _, p := range t.piecesOf(i) {
			row = binary.LittleEndian.AppendUint64(row, uint64(p.Offset))
			row = binary.LittleEndian.AppendUint64(row, uint64(p.Bytes))
		}
		h.Write(row)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// digest is that of the places of all copies, empty without any.
func (c *copyTable) digest() string {
	if c == nil {
		return ""
	}
	h := sha256.New()
	var part []byte
	for row := range len(c.first) - 1 {
		for _, p := range c.of(row) {
			part = binary.LittleEndian.AppendUint32(part[:0], uint32(row))
			part = binary.LittleEndian.AppendUint32(part, uint32(p.Piece))
			part = binary.LittleEndian.AppendUint32(part, uint32(p.Lane))
			part = binary.LittleEndian.AppendUint64(part, uint64(p.Offset))
			h.Write(part)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// differs says in what a build that was begun differs from the one that is asked
// for; empty: in nothing that matters.
func (begun *buildStamp) differs(now *buildStamp) string {
	if len(begun.Files) != len(now.Files) {
		return fmt.Sprintf("it was begun with a checkpoint of %d files, this one has %d", len(begun.Files), len(now.Files))
	}
	for i, was := range begun.Files {
		is := now.Files[i]
		switch {
		case was.Size != is.Size:
			return fmt.Sprintf("the checkpoint's file %s has %d bytes, it was begun with %d", is.Path, is.Size, was.Size)
		case was.Header != is.Header:
			return fmt.Sprintf("the checkpoint's file %s has another header than it was begun with", is.Path)
		}
	}
	switch {
	case begun.Model != now.Model:
		return "it was begun with another model, or with other tensors of it"
	case begun.Records != now.Records:
		return "it was begun with another alignment or other projections"
	case !slices.Equal(begun.Lanes, now.Lanes):
		return fmt.Sprintf("it was begun with the lanes %s, now they are %s", laneText(begun.Lanes), laneText(now.Lanes))
	case begun.Order != now.Order:
		return "it was begun with another order of the experts: give the same trace, or none"
	case begun.Copies != now.Copies:
		return "it was begun with other second copies"
	}
	return ""
}

func laneText(lanes []ManifestLane) string {
	var parts []string
	for _, l := range lanes {
		parts = append(parts, fmt.Sprintf("%s (weight %g, %d bytes)", l.Path, l.Weight, l.Size))
	}
	return strings.Join(parts, ", ")
}

// writeMarker writes the marker first of all, and makes it durable with the folder,
// before anything lies elsewhere that only it names.
func (b *builder) writeMarker() error {
	m, err := b.newMarker()
	if err != nil {
		return err
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(data) > maxMarkerBytes {
		return fmt.Errorf("%w: %s would have %d bytes, want at most %d", ErrPlan, markerName, len(data), maxMarkerBytes)
	}
	b.stamp = sha256.Sum256(data)
	if err := b.writeFile(markerName, data); err != nil {
		return err
	}
	return errors.Join(b.fs.SyncDir(b.temp), b.fs.SyncDir(filepath.Dir(b.temp)))
}

// remains is what a killed build left beside the target.
type remains struct {
	marker
	begun bool  // it got as far as to make lanes
	rows  []int // that its journal names
	// renaming: it had come to giving lanes their names, and so everything was written.
	renaming bool
}

func (r *remains) names(temp string) bool { return slices.Contains(r.Lanes, temp) }

// findRemains looks for what a killed build left. The error is an ErrUnfinished
// unless the options say what to do with it and it can be done.
func (b *builder) findRemains() (*remains, error) {
	if b.resume && b.discard {
		return nil, fmt.Errorf("layout: build: %w: an unfinished build can be resumed or discarded, not both", ErrPlan)
	}
	_, err := b.fs.Stat(b.temp)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("layout: build: %w", err)
	}
	if !b.discard && !b.resume {
		return &remains{}, fmt.Errorf("layout: build: %w at %s: if no other build of this store is running, resume it with the same checkpoint and options, or discard it, or remove it by hand", ErrUnfinished, b.temp)
	}
	left, err := b.readMarker()
	if err != nil || b.discard || !left.begun {
		return left, err
	}
	return left, b.checkResume(left)
}

// checkResume refuses to go on with another build, and finds the lanes that have
// got their names already.
func (b *builder) checkResume(left *remains) error {
	if _, ok := b.fs.(ResumeFS); !ok {
		return fmt.Errorf("layout: build: %w at %s: %T cannot go on with files: %w: discard it", ErrUnfinished, b.temp, b.fs, errors.ErrUnsupported)
	}
	if left.Build == nil {
		return fmt.Errorf("layout: build: %w at %s cannot be resumed, it is of an older builder: discard it", ErrUnfinished, b.temp)
	}
	now, err := b.newMarker()
	if err != nil {
		return err
	}
	if what := left.Build.differs(now.Build); what != "" {
		return fmt.Errorf("layout: build: %w at %s cannot be resumed: %s: resume with what it was begun with, or discard it", ErrUnfinished, b.temp, what)
	}
	// The manifest is written and synced after everything else and before lanes are
	// renamed. Only then can what lies at a lane's target be ours.
	if !isThere(b.fs, filepath.Join(b.temp, manifestName)) {
		return nil
	}
	for _, lane := range b.files() {
		if lane.target == "" || isThere(b.fs, lane.temp) {
			continue
		}
		info, err := b.fs.Stat(lane.target)
		lane.placed = err == nil && info.Mode().IsRegular() && info.Size() == lane.size
		left.renaming = left.renaming || lane.placed
	}
	return nil
}

// readMarker proves that the unfinished folder is ours. A build that was killed
// before its marker was safe has left a folder with nothing else.
func (b *builder) readMarker() (*remains, error) {
	r := &remains{}
	entries, err := b.fs.ReadDir(b.temp)
	if err != nil {
		return r, fmt.Errorf("layout: build: %w at %s: %w", ErrUnfinished, b.temp, err)
	}
	if len(entries) == 0 {
		return r, nil
	}
	data, err := readSmall(b.fs, filepath.Join(b.temp, markerName), maxMarkerBytes)
	if err == nil && len(entries) == 1 && isTornMarker(data) {
		return r, nil
	}
	if err != nil || json.Unmarshal(data, &r.marker) != nil || r.Format != markerWord {
		return r, fmt.Errorf("layout: build: %w at %s carries no mark of ours: look at it, and remove it by hand", ErrUnfinished, b.temp)
	}
	b.stamp, r.begun = sha256.Sum256(data), true
	return r, nil
}

// markerStart is how every marker starts.
const markerStart = `{"format":"` + markerWord + `"`

// isTornMarker reports whether this is what a crash can leave of a marker that was
// being written.
func isTornMarker(data []byte) bool {
	n := min(len(data), len(markerStart))
	return allZero(data) || string(data[:n]) == markerStart[:n] && !json.Valid(data)
}

// discardRemains removes what a killed build left. The folder goes last, and only
// when nothing else is left that its marker names.
func (b *builder) discardRemains(left *remains) error {
	for _, path := range left.Lanes {
		if !isThere(b.fs, path) || !strings.HasSuffix(path, tempSuffix) {
			continue
		}
		if err := errors.Join(b.fs.RemoveAll(path), b.fs.SyncDir(filepath.Dir(path))); err != nil {
			return fmt.Errorf("layout: build: discard unfinished build: %w", err)
		}
	}
	if err := b.fs.RemoveAll(b.temp); err != nil {
		return fmt.Errorf("layout: build: discard unfinished build: %w", err)
	}
	return nil
}
