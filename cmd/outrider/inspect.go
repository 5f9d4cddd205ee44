package main

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"

	"outrider/internal/tables"
	"outrider/layout"
)

type inspectCmd struct {
	Path    string `arg:"" help:"A store's folder, or a checkpoint: a GGUF or safetensors file, any shard of a split model, its index, or its folder."`
	Tensors bool   `help:"List which tensor each projection comes from, and of a checkpoint each router."`
	readingFlags
}

func (inspectCmd) Help() string {
	return "Tells what was found: layers, experts, the projections of an expert and their types, what stays resident and what is left out. " +
		"Reads headers and the index only, and changes nothing." + statusHelp
}

// inspection is what --json prints.
type inspection struct {
	Kind         string            `json:"kind"` // "store" or "checkpoint"
	Path         string            `json:"path"`
	ID           string            `json:"id,omitempty"`
	Model        string            `json:"model"`
	Architecture string            `json:"architecture"`
	Family       string            `json:"family,omitempty"` // a guess by names
	Layers       int               `json:"layers"`
	LayerIDs     []int             `json:"layer_ids,omitempty"`
	Experts      int               `json:"experts"`
	TopK         int               `json:"top_k"`
	Records      []inspectedRecord `json:"records"`
	ExpertBytes  int64             `json:"expert_bytes"`
	RestBytes    int64             `json:"rest_bytes"`
	// Resident is what RestBytes are made of, and what is left out; a checkpoint's.
	Resident     []layout.ResidentGroup `json:"resident,omitempty"`
	MemoryBytes  int64                  `json:"memory_bytes"` // all experts resident
	FloorBytes   int64                  `json:"floor_bytes"`
	CycleBytes   int64                  `json:"cycle_bytes"`
	Align        int64                  `json:"align,omitempty"`
	PaddingBytes int64                  `json:"padding_bytes,omitempty"`
	Order        string                 `json:"order,omitempty"`
	Routers      *inspectedRouters      `json:"routers,omitempty"`
	Copies       *inspectedCopies       `json:"copies,omitempty"`
	Lanes        []inspectedLane        `json:"lanes"`
	Format       string                 `json:"checkpoint_format"`
	Checkpoint   []inspectedFile        `json:"checkpoint_files,omitempty"`
	Tensors      []inspectedTensor      `json:"tensors,omitempty"`
	Notes        []string               `json:"notes,omitempty"`
}

// inspectedRecord is what the experts of a run of layers consist of.
type inspectedRecord struct {
	FirstLayer  int                 `json:"first_layer"`
	LastLayer   int                 `json:"last_layer"`
	Bytes       int64               `json:"bytes"` // of one expert, without padding
	Projections []layout.Projection `json:"projections"`
}

type inspectedLane struct {
	Path   string  `json:"path"`
	Size   int64   `json:"size"`
	Weight float64 `json:"weight,omitempty"`
	Direct bool    `json:"direct"`
	// DirectAlign is what direct reads of the lane need, in bytes.
	DirectAlign int    `json:"direct_align,omitempty"`
	Fallback    string `json:"fallback,omitempty"` // why reads are buffered
	// Copies are the second copies that lie beside the lane.
	Copies *inspectedLane `json:"copies,omitempty"`
}

type inspectedFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// Run prints what a store or a checkpoint is.
func (c *inspectCmd) Run(_ context.Context, a *app) error {
	m, err := c.open(layout.OS(), c.Path, layout.Direct)
	if err != nil {
		return err
	}
	defer m.Source.Close() // nothing was written
	report := inspect(m)
	if c.Tensors {
		if report.Tensors, err = m.tensors(); err != nil {
			return err
		}
	}
	return a.print(report, report.writeTo)
}

func inspect(m *model) *inspection {
	shape := m.Source.Shape()
	r := &inspection{
		Kind: "checkpoint", Path: m.path, Model: m.Name, Architecture: m.Architecture, Format: m.Format,
		Layers: shape.Layers, LayerIDs: shape.LayerIDs, Experts: shape.Experts, TopK: shape.TopK,
		RestBytes: m.RestBytes, MemoryBytes: m.slotBytes(),
	}
	r.FloorBytes, r.CycleBytes = m.floor()
	r.Routers = inspectRouters(m.Source)
	if m.Checkpoint != nil {
		r.Family, r.Resident = m.Checkpoint.Family, m.Checkpoint.Resident
		r.Notes = m.Checkpoint.Notes
	}
	r.addRecords(m.Source)
	for i, lane := range m.Source.Lanes() {
		l := inspectFile(lane.Path, lane.File)
		if m.Store != nil {
			l.Weight = m.Store.Manifest().Lanes[i].Weight
		}
		if lane.Copies != nil {
			copies := inspectFile(lane.CopiesPath, lane.Copies)
			l.Copies = &copies
		}
		r.Lanes = append(r.Lanes, l)
	}
	if m.Store != nil {
		manifest := m.Store.Manifest()
		r.Kind, r.ID, r.Align, r.PaddingBytes, r.Order = "store", manifest.ID, manifest.Align, manifest.PaddingBytes, manifest.Order
		r.Copies = inspectCopies(m.Store)
		for _, f := range m.Files {
			r.Checkpoint = append(r.Checkpoint, inspectedFile{Path: f.Path, Size: f.Size})
		}
	}
	return r
}

func inspectFile(path string, f layout.File) inspectedLane {
	direct := f.Direct()
	return inspectedLane{
		Path: path, Size: f.Size(), Direct: layout.IsDirect(f),
		DirectAlign: max(direct.Memory, direct.Offset), Fallback: layout.FallbackReason(f),
	}
}

// addRecords groups neighbouring layers whose experts have the same make.
func (r *inspection) addRecords(source layout.Source) {
	for l := range r.Layers {
		record := source.Record(l)
		var bytes int64
		for _, p := range record {
			bytes += p.Bytes
		}
		r.ExpertBytes += bytes * int64(r.Experts)
		if n := len(r.Records); n > 0 && reflect.DeepEqual(r.Records[n-1].Projections, record) {
			r.Records[n-1].LastLayer = l
			continue
		}
		r.Records = append(r.Records, inspectedRecord{FirstLayer: l, LastLayer: l, Bytes: bytes, Projections: record})
	}
}

func (r *inspection) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add(r.Kind, "%s", r.Path)
	f.Add("model", "%s", r.modelText())
	if r.Kind == "checkpoint" {
		f.Add("format", "%s, %s", r.Format, countText(len(r.Lanes), "file"))
	}
	f.Add("shape", "%d layers x %d experts, top %d", r.Layers, r.Experts, r.TopK)
	f.Add("blocks", "%s", blocksText(layout.Shape{Layers: r.Layers, Experts: r.Experts, TopK: r.TopK, LayerIDs: r.LayerIDs}))
	f.Add("experts", "%s", sizeText(r.ExpertBytes))
	f.Add("the rest", "%s, always resident", sizeText(r.RestBytes))
	f.Add("all in memory", "%s: what a budget of 100%% is", sizeText(r.MemoryBytes))
	f.Add("least budget", "%s: one layer of one token", sizeText(r.FloorBytes))
	f.Add("token cycle", "%s: all layers of one token; recency caches hold nothing below it", sizeText(r.CycleBytes))
	if r.Routers != nil {
		f.Add("routers", "%s", r.Routers.text())
	}
	if r.Kind == "store" {
		f.Add("alignment", "%d bytes, padding %.2f %%", r.Align, percent(r.PaddingBytes, r.ExpertBytes))
		f.Add("order", "%s", map[string]string{"index": "by index", "given": "by co-activation or as the builder was told"}[r.Order])
	}
	if r.Copies != nil {
		f.Add("copies", "%s", r.Copies.text())
	}
	for _, note := range r.Notes {
		f.Add("note", "%s", note)
	}
	f.Print(w)
	fmt.Fprintln(w)
	r.writeRecords(w)
	fmt.Fprintln(w)
	r.writeResident(w)
	r.writeTensors(w)
	r.writeLanes(w)
	if r.Kind == "store" {
		fmt.Fprintln(w)
		g := tables.NewGrid("built from", "bytes")
		for _, file := range r.Checkpoint {
			g.Add(file.Path, fmt.Sprint(file.Size))
		}
		g.Print(w)
	}
}

func (r *inspection) writeRecords(w io.Writer) {
	header := []string{"layers", "projection", "type", "dims", "bytes", "rows"}
	if !r.unusual() {
		header = header[:len(header)-1]
	}
	g := tables.NewGrid(header...)
	for _, record := range r.Records {
		layers := span(record.FirstLayer, record.LastLayer)
		for _, p := range record.Projections {
			g.Add([]string{layers, p.Name, p.Type, joinDims(p.Dims), fmt.Sprint(p.Bytes), rowsText(p)}[:len(header)]...)
			layers = ""
		}
		g.Add([]string{"", "one expert", "", "", fmt.Sprint(record.Bytes), ""}[:len(header)]...)
	}
	g.Print(w)
}

func (r *inspection) writeLanes(w io.Writer) {
	g := tables.NewGrid("lane", "bytes", "weight", "reads")
	if r.Kind == "checkpoint" {
		g = tables.NewGrid("file", "bytes", "reads")
	}
	for _, l := range r.Lanes {
		cells := []string{l.Path, fmt.Sprint(l.Size)}
		if r.Kind == "store" {
			cells = append(cells, fmt.Sprint(l.Weight))
		}
		g.Add(append(cells, l.reads())...)
		if l.Copies != nil {
			g.Add(l.Copies.Path, fmt.Sprint(l.Copies.Size), "-", l.Copies.reads())
		}
	}
	g.Print(w)
}

// reads says how a lane is read here.
func (l inspectedLane) reads() string {
	switch {
	case l.Direct:
		return fmt.Sprintf("direct, aligned to %d", l.DirectAlign)
	case l.Fallback != "":
		return "buffered: " + l.Fallback
	}
	return "buffered"
}

// span writes a run of numbers as "3" or "3-5".
func span(first, last int) string {
	if first == last {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d-%d", first, last)
}

// joinDims writes dimensions as "256 x 64".
func joinDims(dims []int64) string {
	var out []string
	for _, v := range dims {
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, " x ")
}

// percent is part of whole in per cent, 0 of nothing.
func percent(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
