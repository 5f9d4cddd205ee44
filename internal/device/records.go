package device

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"outrider/layout"
)

const page = 4096

// RecordsOptions describe a Records source.
type RecordsOptions struct {
	Shape layout.Shape
	// Bytes is the size of an expert of a layer: the sum of its two
	// projections, "up" and "down". Default 8192 each.
	Bytes func(layer int) int64
	// Drives are the lanes' drives; each record is cut into pages that are dealt
	// out to them by Weights, nil for evenly. None: one lane that takes no time.
	Drives  []*Drive
	Weights []float64
	// Copied says which experts lie twice: what lies on a lane lies on the next one
	// too, in its second file. nil: none do.
	Copied func(layout.ExpertID) bool
	Sums   Sums // whether parts carry checksums
	// Hollow files have a size but no contents: a read touches the ends of pages
	// only, and so costs little. For measuring times; Sums are left out.
	Hollow bool
}

// Sums says whether a Records source has checksums, as a store has and a
// checkpoint opened in place has not.
type Sums uint8

const (
	Summed Sums = iota
	Unsummed
)

// Records is a layout.Source in memory whose experts have known contents. Safe
// for concurrent use.
type Records struct {
	shape  layout.Shape
	layers []recordLayer
	lanes  []layout.Lane
	opt    RecordsOptions
	crc    []uint32 // two an expert
}

type recordLayer struct {
	record []layout.Projection
	bytes  int64   // of an expert
	slot   int64   // rounded up to pages
	shares []int64 // of an expert, by lane
	starts []int64 // of the layer, by lane
}

var _ layout.Source = (*Records)(nil)

// NewRecords makes a source; the contents are made here and held in memory.
func NewRecords(opt RecordsOptions) (*Records, error) {
	if err := opt.Shape.Validate(); err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	r := &Records{shape: opt.Shape, opt: opt}
	lanes := max(len(opt.Drives), 1)
	ends := make([]int64, lanes)
	for l := range opt.Shape.Layers {
		n := int64(8192)
		if opt.Bytes != nil {
			n = opt.Bytes(l)
		}
		if n < 2 {
			return nil, fmt.Errorf("device: layer %d has experts of %d bytes, want at least 2", l, n)
		}
		r.layers = append(r.layers, newRecordLayer(n, ends, opt.Shape.Experts, opt.Weights))
	}
	files := make([]layout.File, lanes)
	var full []*memory
	for i := range files {
		if opt.Hollow {
			files[i] = hollow(ends[i])
		} else {
			full = append(full, &memory{data: make([]byte, ends[i])})
			files[i] = full[i]
		}
		r.lanes = append(r.lanes, layout.Lane{Path: fmt.Sprintf("lane-%d.bin", i), File: r.on(i, files[i])})
	}
	if !opt.Hollow {
		if err := r.fill(full); err != nil {
			return nil, err
		}
	}
	if opt.Copied != nil && lanes > 1 {
		// The same bytes at the same places: what is not copied is never asked for.
		for i := range files {
			next := (i + 1) % lanes
			r.lanes[next].Copies = r.on(next, files[i])
			r.lanes[next].CopiesPath = r.lanes[next].Path + ".copies"
		}
	}
	return r, nil
}

// on puts a file of a lane on its drive, if it has one.
func (r *Records) on(lane int, f layout.File) layout.File {
	if len(r.opt.Drives) > 0 && r.opt.Drives[lane] != nil {
		return r.opt.Drives[lane].File(f)
	}
	return f
}

func newRecordLayer(n int64, ends []int64, experts int, weights []float64) recordLayer {
	up := (n + 1) / 2
	rl := recordLayer{bytes: n, slot: (n + page - 1) / page * page}
	rl.record = []layout.Projection{
		{Name: "up", Type: "I8", Dims: []int64{up, 1}, Bytes: up},
		{Name: "down", Type: "I8", Dims: []int64{n - up, 1}, Bytes: n - up},
	}
	for i, share := range deal(rl.slot/page, len(ends), weights) {
		rl.shares = append(rl.shares, share*page)
		rl.starts = append(rl.starts, ends[i])
		ends[i] += share * page * int64(experts)
	}
	return rl
}

// deal shares pages out by weights, the remainder to the first lanes.
func deal(pages int64, lanes int, weights []float64) []int64 {
	shares, sum, rest := make([]int64, lanes), 0.0, pages
	for i := range shares {
		sum += weight(weights, i)
	}
	for i := range shares {
		shares[i] = int64(float64(pages) * weight(weights, i) / sum)
		rest -= shares[i]
	}
	for i := 0; rest > 0; i, rest = (i+1)%lanes, rest-1 {
		shares[i]++
	}
	return shares
}

func weight(weights []float64, i int) float64 {
	if i < len(weights) {
		return weights[i]
	}
	return 1
}

// fill writes the contents into the lanes and notes their checksums.
func (r *Records) fill(files []*memory) error {
	table := crc32.MakeTable(crc32.Castagnoli)
	var p layout.Placement
	for o := range r.shape.Count() {
		id := r.shape.ID(o)
		want := r.Want(id)
		up := r.layers[id.Layer].record[0].Bytes
		r.crc = append(r.crc, crc32.Checksum(want[:up], table), crc32.Checksum(want[up:], table))
		if err := r.Locate(id, &p); err != nil {
			return err
		}
		for _, rd := range p.Reads {
			copy(files[rd.Lane].data[rd.Offset:rd.Offset+rd.Bytes], want[min(rd.At, int64(len(want))):])
		}
	}
	return nil
}

// Want is a fresh copy of the true bytes of an expert, both projections.
func (r *Records) Want(id layout.ExpertID) []byte {
	n := r.layers[id.Layer].bytes
	b := make([]byte, 0, n+8)
	for i := uint64(0); int64(len(b)) < n; i++ {
		b = binary.LittleEndian.AppendUint64(b, mix(uint64(r.shape.Ordinal(id))<<32|i))
	}
	return b[:n]
}

// Shape is that of the options.
func (r *Records) Shape() layout.Shape { return r.shape }

// Lanes are the lanes, on their drives.
func (r *Records) Lanes() []layout.Lane { return r.lanes }

// Record is "up" and "down".
func (r *Records) Record(layer int) []layout.Projection { return r.layers[layer].record }

// SlotBytes is the size of a layer's experts rounded up to pages.
func (r *Records) SlotBytes(layer int) int64 { return r.layers[layer].slot }

// Locate fails only for an expert that the shape has not.
func (r *Records) Locate(id layout.ExpertID, p *layout.Placement) error {
	if !r.shape.Contains(id) {
		return fmt.Errorf("device: no %v", id)
	}
	rl := &r.layers[id.Layer]
	p.Bytes, p.Reads, p.Parts = rl.slot, p.Reads[:0], p.Parts[:0]
	at := int64(0)
	for lane, share := range rl.shares {
		if share > 0 {
			rd := layout.Read{Lane: lane, Bytes: share, At: at, Need: share, Offset: rl.starts[lane] + int64(id.Index)*share}
			if next := (lane + 1) % len(r.lanes); next != lane && r.opt.Copied != nil && r.opt.Copied(id) {
				rd.Copy = layout.Copy{Ok: true, Lane: next, Offset: rd.Offset}
			}
			p.Reads = append(p.Reads, rd)
		}
		at += share
	}
	at = 0
	for i, pr := range rl.record {
		part := layout.Part{At: at, Bytes: pr.Bytes}
		if r.opt.Sums == Summed && r.crc != nil && len(r.crc) > 2*r.shape.Ordinal(id) {
			part.Sum, part.Summed = r.crc[2*r.shape.Ordinal(id)+i], true
		}
		p.Parts = append(p.Parts, part)
		at += pr.Bytes
	}
	return nil
}

// Close closes the lanes.
func (r *Records) Close() error {
	var errs []error
	for _, l := range r.lanes {
		errs = append(errs, l.File.Close())
		if l.Copies != nil {
			errs = append(errs, l.Copies.Close())
		}
	}
	return errors.Join(errs...)
}

// memory is a layout.File over bytes.
type memory struct{ data []byte }

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("device: read at %d", off)
	}
	if off >= int64(len(m.data)) {
		return 0, io.EOF
	}
	n := copy(p, m.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (m *memory) Size() int64              { return int64(len(m.data)) }
func (m *memory) Direct() layout.Alignment { return layout.Alignment{} }
func (m *memory) Close() error             { return nil }

// hollow is a file of so many bytes that nobody looks at.
type hollow int64

func (h hollow) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(h) {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), int64(h)-off)]
	const touched = 32 // of each end of a page
	n := len(p)
	for len(p) > 0 {
		q := p[:min(page, len(p))]
		clear(q[:min(touched, len(q))])
		clear(q[max(len(q)-touched, 0):])
		p = p[len(q):]
	}
	return n, nil
}

func (h hollow) Size() int64            { return int64(h) }
func (hollow) Direct() layout.Alignment { return layout.Alignment{} }
func (hollow) Close() error             { return nil }
