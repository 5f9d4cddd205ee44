package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"outrider/layout"
)

// Limits of a histogram.
const (
	// MaxHistogram is the most counts over all tables.
	MaxHistogram = 1 << 26
	// maxHistogramBytes is the most text of a histogram file that is read.
	maxHistogramBytes = 1 << 30
)

// Histogram is how often experts were chosen, without the order: what a tool
// records that keeps no trace. Nothing that depends on order, such as a cache's
// hits, can be told from it.
type Histogram struct {
	Model    string
	Layers   int
	LayerIDs []int // block number of each layer; nil: 0, 1, 2, … or unknown
	Experts  int
	TopK     int    // 0 where unknown
	Unit     string // what is counted: "tokens", "share of tokens", "prompts"; empty where unknown
	Source   string
	Note     string
	Tables   []Counts
}

// Counts is one table of a histogram.
type Counts struct {
	Label  string      // what it was counted over; empty if it is the only one
	Counts [][]float64 // a row a layer, a number an expert: finite, 0 or more
}

// Validate reports the first way in which h is no histogram.
func (h *Histogram) Validate() error {
	if err := h.validate(); err != nil {
		return fmt.Errorf("trace: histogram: %w", err)
	}
	return nil
}

func (h *Histogram) validate() error {
	shape := layout.Shape{Layers: h.Layers, Experts: h.Experts, TopK: max(h.TopK, 1), LayerIDs: h.LayerIDs}
	if h.TopK < 0 {
		return fmt.Errorf("top-k is %d, want 0 (unknown) or more", h.TopK)
	}
	if err := shape.Validate(); err != nil {
		return err
	}
	if len(h.Tables) == 0 {
		return fmt.Errorf("it holds no table")
	}
	if n := int64(len(h.Tables)) * int64(h.Layers) * int64(h.Experts); n > MaxHistogram {
		return fmt.Errorf("it has %d counts, want at most %d", n, MaxHistogram)
	}
	for _, t := range h.Tables {
		if len(t.Counts) != h.Layers {
			return fmt.Errorf("table %q has %d rows, want one for each of %d layers", t.Label, len(t.Counts), h.Layers)
		}
		for l, row := range t.Counts {
			if len(row) != h.Experts {
				return fmt.Errorf("table %q, layer %d: %d counts, want one for each of %d experts", t.Label, l, len(row), h.Experts)
			}
			if i := slices.IndexFunc(row, func(n float64) bool { return !(n >= 0) || math.IsInf(n, 0) }); i >= 0 {
				return fmt.Errorf("table %q, layer %d, expert %d: the count is %v, want a number of 0 or more", t.Label, l, i, row[i])
			}
		}
	}
	return nil
}

// jsonHistogram is the file's form.
type jsonHistogram struct {
	Kind     string      `json:"kind"`
	Model    string      `json:"model"`
	Layers   int         `json:"layers"`
	LayerIDs []int       `json:"layer_ids,omitempty"`
	Experts  int         `json:"experts"`
	TopK     int         `json:"top_k,omitempty"`
	Unit     string      `json:"unit,omitempty"`
	Source   string      `json:"source,omitempty"`
	Note     string      `json:"note,omitempty"`
	Tables   []jsonTable `json:"tables"`
}

type jsonTable struct {
	Label  string      `json:"label"`
	Counts [][]float64 `json:"counts"`
}

const histogramKind = "histogram"

// ReadHistogram reads a histogram file, plain, gzip or zstd. Another kind of
// object is ErrNotTrace, one that breaks the rules a *CorruptError.
func ReadHistogram(r io.Reader) (*Histogram, error) {
	src, err := Decompress(r)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(io.LimitReader(src, maxHistogramBytes))
	var j jsonHistogram
	if err := dec.Decode(&j); err != nil {
		return nil, fmt.Errorf("trace: %w: no histogram object: %w", ErrNotTrace, err)
	}
	if j.Kind != histogramKind || j.Tables == nil {
		return nil, fmt.Errorf("trace: %w: the object has kind %q and %d tables, want kind %q and some", ErrNotTrace, j.Kind, len(j.Tables), histogramKind)
	}
	h := &Histogram{
		Model: j.Model, Layers: j.Layers, LayerIDs: j.LayerIDs, Experts: j.Experts, TopK: j.TopK,
		Unit: j.Unit, Source: j.Source, Note: j.Note,
	}
	for _, t := range j.Tables {
		h.Tables = append(h.Tables, Counts(t))
	}
	if err := h.validate(); err != nil {
		return nil, &CorruptError{Offset: dec.InputOffset(), Reason: err.Error()}
	}
	return h, nil
}

// Write writes the histogram as a file's content, uncompressed.
func (h *Histogram) Write(w io.Writer) error {
	if err := h.Validate(); err != nil {
		return err
	}
	j := jsonHistogram{
		Kind: histogramKind, Model: h.Model, Layers: h.Layers, LayerIDs: h.LayerIDs, Experts: h.Experts, TopK: h.TopK,
		Unit: h.Unit, Source: h.Source, Note: h.Note,
	}
	for _, t := range h.Tables {
		j.Tables = append(j.Tables, jsonTable(t))
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&j); err != nil {
		return fmt.Errorf("trace: write histogram: %w", err)
	}
	return nil
}

// Create writes the histogram into a new file, compressed if the name ends in
// .gz or .zst. It is an error if there is such a file already; when Create
// fails it leaves none behind.
func (h *Histogram) Create(path string) error {
	if err := h.Validate(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("trace: create histogram: %w", err)
	}
	packer, _, err := newPacker(path, f)
	switch {
	case err != nil:
	case packer == nil:
		err = h.Write(f)
	default:
		err = errors.Join(h.Write(packer), packer.Close())
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("trace: create histogram %s: %w", path, err), os.Remove(path))
	}
	return nil
}
