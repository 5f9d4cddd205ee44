package main

import (
	"fmt"
	"io"
	"strings"

	"outrider/internal/tables"
	"outrider/trace/importer"
)

// histogramSummary is what trace info --json prints of counts without order.
type histogramSummary struct {
	Kind     string           `json:"kind"` // "histogram"
	Path     string           `json:"path"`
	Form     string           `json:"form"`
	Notes    []string         `json:"notes,omitempty"`
	Model    string           `json:"model"`
	Source   string           `json:"source,omitempty"`
	Note     string           `json:"note,omitempty"`
	Layers   int              `json:"layers"`
	Experts  int              `json:"experts"`
	TopK     int              `json:"top_k,omitempty"`
	Unit     string           `json:"unit,omitempty"`
	Tables   int              `json:"tables"`
	PerLayer []histogramLayer `json:"per_layer"` // over all tables
}

type histogramLayer struct {
	Layer   int     `json:"layer"`
	Block   int     `json:"block"`
	Total   float64 `json:"total"`
	Entropy float64 `json:"entropy_bits"`
	MaxMean float64 `json:"max_over_mean_load"`
	Unused  int     `json:"unused_experts"`
}

func summariseHistogram(paths []string, in *importer.Import) *histogramSummary {
	h := in.Histogram
	s := &histogramSummary{
		Kind: "histogram", Path: strings.Join(paths, ", "), Form: in.Form.Name, Notes: in.Notes(),
		Model: h.Model, Source: h.Source, Note: h.Note, Layers: h.Layers, Experts: h.Experts, TopK: h.TopK,
		Unit: h.Unit, Tables: len(h.Tables),
	}
	for l := range h.Layers {
		load := h.Load(l)
		layer := histogramLayer{Layer: l, Block: l, Total: load.Total, Entropy: load.Entropy, MaxMean: load.MaxMean, Unused: load.Unused}
		if h.LayerIDs != nil {
			layer.Block = h.LayerIDs[l]
		}
		s.PerLayer = append(s.PerLayer, layer)
	}
	return s
}

func (s *histogramSummary) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add("histogram", "%s", s.Path)
	f.Add("form", "%s", s.Form)
	f.Add("model", "%s", s.Model)
	f.Add("source", "%s", s.Source)
	f.Add("note", "%s", s.Note)
	topK := ""
	if s.TopK > 0 {
		topK = fmt.Sprintf(", top %d", s.TopK)
	}
	f.Add("shape", "%d layers x %d experts%s", s.Layers, s.Experts, topK)
	unit := s.Unit
	if unit == "" {
		unit = "unknown"
	}
	f.Add("tables", "%d; counted: %s", s.Tables, unit)
	f.Add("order", "none: it can be described and converted, but not replayed")
	for _, text := range s.Notes {
		f.Add("note", "%s", text)
	}
	f.Print(w)
	fmt.Fprintln(w)
	g := tables.NewGrid("layer", "block", "counted", "entropy", "max/mean", "unused")
	for _, l := range s.PerLayer {
		g.Add(fmt.Sprint(l.Layer), fmt.Sprint(l.Block), fmt.Sprintf("%.6g", l.Total), fmt.Sprintf("%.3f", l.Entropy),
			fmt.Sprintf("%.2f", l.MaxMean), fmt.Sprint(l.Unused))
	}
	g.Print(w)
}
