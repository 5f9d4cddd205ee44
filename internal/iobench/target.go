package iobench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"outrider/layout"
)

// Batch is what one layer asks for: so many experts of so many bytes.
type Batch struct {
	Experts     int
	RecordBytes int64
}

// DefaultBatches are those that the project's figures are of.
func DefaultBatches() []Batch { return []Batch{{8, 4 << 20}, {8, 1 << 20}, {6, 256 << 10}} }

// String is "8x4MiB"; UnmarshalText reads it.
func (b Batch) String() string { return fmt.Sprintf("%dx%s", b.Experts, sizeName(b.RecordBytes)) }

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// sizeName is exact: "4MiB", "52KiB", "54321".
func sizeName(n int64) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (b *Batch) UnmarshalText(text []byte) error {
	experts, size, _ := strings.Cut(string(text), "x")
	unit := int64(1)
	for _, u := range units {
		if number, ok := strings.CutSuffix(size, u.name); ok {
			size, unit = number, u.bytes
			break
		}
	}
	k, err := strconv.Atoi(experts)
	n, err2 := strconv.ParseInt(size, 10, 64)
	if errors.Join(err, err2) != nil || k < 1 || n < 1 || n > layout.MaxRecordBytes/2/unit {
		return fmt.Errorf("%q is no batch: give experts and their size, such as 8x4MiB", text)
	}
	*b = Batch{Experts: k, RecordBytes: n * unit}
	return nil
}

// Target is a model's files, of which batches of one size are read.
type Target struct {
	Batch // RecordBytes are those of a slot: what is read for an expert
	Shape layout.Shape
	Files []string // the lanes, for fio and for the page cache

	// Open opens the target on a file system; each arm does, and closes it. A target
	// that is not made of files may ignore the file system.
	Open func(layout.FS) (layout.Source, error)
}

const (
	leastLayers    = 4
	mostExperts    = 1024 // of a layer, where there is a choice
	batchesAtHand  = 2    // that fit into memory at once
	batchesOfLayer = 2    // that a layer has at least, so that there is a choice
)

// shapeFor is the shape of a store of about so many bytes for a batch. The error
// names what is needed.
func (b Batch) shapeFor(bytes int64) (layout.Shape, error) {
	each := int64(b.Experts) * batchesOfLayer * leastLayers
	if bytes/b.RecordBytes < each {
		return layout.Shape{}, fmt.Errorf("%w: %d bytes for batches of %v, want at least %d", ErrTooSmall, bytes, b, each*b.RecordBytes)
	}
	shape := layout.Shape{Layers: leastLayers, TopK: b.Experts}
	count := bytes / b.RecordBytes
	for count/int64(shape.Layers) > max(mostExperts, int64(b.Experts)*batchesOfLayer) && shape.Layers < layout.MaxLayers {
		shape.Layers *= 2
	}
	shape.Experts = int(min(count/int64(shape.Layers), layout.MaxExperts, int64(layout.MaxRecords/shape.Layers)))
	return shape, nil
}

// slotBytes is the largest slot of a source.
func slotBytes(src layout.Source) int64 {
	most := int64(0)
	for l := range src.Shape().Layers {
		most = max(most, src.SlotBytes(l))
	}
	return most
}

// NewTarget describes files that open opens: one batch is what the router of the
// model chooses for a token.
func NewTarget(fsys layout.FS, open func(layout.FS) (layout.Source, error)) (*Target, error) {
	src, err := open(fsys)
	if err != nil {
		return nil, err
	}
	t := &Target{Shape: src.Shape(), Open: open, Batch: Batch{Experts: src.Shape().TopK, RecordBytes: slotBytes(src)}}
	for _, lane := range src.Lanes() {
		t.Files = append(t.Files, lane.Path)
	}
	if t.Shape.Experts <= t.recent() {
		err = fmt.Errorf("%w: %d layers with %d experts, of which %d are used at a time: a batch would be in memory when it is asked for",
			ErrTooSmall, t.Shape.Layers, t.Shape.Experts, t.Experts)
	}
	return t, errors.Join(err, src.Close())
}

// recent is how many of a layer's latest draws may be in memory, or are of the same
// batch: as many as none of may be drawn again.
func (t *Target) recent() int {
	return batchesAtHand/t.Shape.Layers*t.Experts + t.Experts - 1
}
