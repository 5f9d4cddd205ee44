package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"outrider/internal/tables"
	"outrider/layout"
)

// inspectedTensor is where a projection of a layer, or a part of its router, comes from.
type inspectedTensor struct {
	Layer int    `json:"layer"`
	What  string `json:"what"` // "gate", "down.bias", "router", "router bias" …
	// Tensor is its name in the checkpoint; "{expert}" stands for an expert's number
	// where each has its own. Dims are those of the whole tensor, fastest first.
	Tensor string   `json:"tensor"`
	Type   string   `json:"type"`
	Dims   []int64  `json:"dims,omitempty"`
	Files  []string `json:"files,omitempty"` // a store does not say
}

// tensors lists where the model's projections come from.
func (m *model) tensors() ([]inspectedTensor, error) {
	if m.Checkpoint != nil {
		return inspectTensors(m.Checkpoint), nil
	}
	named := m.Store.Manifest().Source.Tensors
	if named == nil {
		return nil, inputf("%s does not name the tensors it was built from, as it is of an older builder: list those of its checkpoint", m.path)
	}
	var out []inspectedTensor
	for l := range named {
		for i, p := range m.Source.Record(l) {
			out = append(out, inspectedTensor{Layer: l, What: p.Name, Tensor: named[l][i].Name, Type: p.Type, Dims: named[l][i].Dims})
		}
	}
	return out, nil
}

// inspectTensors lists the tensors of each layer in the order of its records, and
// then those of its router.
func inspectTensors(cp *layout.Checkpoint) (out []inspectedTensor) {
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			t := &cp.Layers[l].Tensors[i]
			out = append(out, inspectedTensor{Layer: l, What: t.Name, Tensor: t.Source, Type: t.Type, Dims: t.SourceDims, Files: filesOf(cp, t)})
		}
		if cp.Routers == nil {
			continue
		}
		for _, r := range routerTensors(&cp.Routers.Layers[l]) {
			if r.Type != "" {
				out = append(out, inspectedTensor{Layer: l, What: r.what, Tensor: r.Source, Type: r.Type, Files: []string{cp.Files[r.File].Path}})
			}
		}
	}
	return out
}

type routerTensor struct {
	layout.RouterTensor
	what string
}

func routerTensors(r *layout.CheckpointRouter) []routerTensor {
	return []routerTensor{{r.Weight, "router"}, {r.Bias, "router bias"}, {r.Selection, "selection bias"}, {r.Hash, "token table"}}
}

// filesOf names the files that a projection's experts lie in, in the order of the
// checkpoint.
func filesOf(cp *layout.Checkpoint, t *layout.ExpertTensor) (names []string) {
	used := make([]bool, len(cp.Files))
	for e := range cp.Shape.Experts {
		used[t.Span(e).File] = true
	}
	for i, f := range cp.Files {
		if used[i] {
			names = append(names, f.Path)
		}
	}
	return names
}

func (r *inspection) modelText() string {
	text := fmt.Sprintf("%s (%s)", r.Model, r.Architecture)
	if r.Family != "" && r.Family != r.Architecture {
		text += ", by its names of the family " + r.Family
	}
	return text
}

// writeResident prints what stays in memory beside the experts.
func (r *inspection) writeResident(w io.Writer) {
	if len(r.Resident) == 0 {
		return
	}
	g := tables.NewGrid("not laid out", "tensors", "bytes", "")
	for _, group := range r.Resident {
		use := "resident"
		if group.LeftOut {
			use = "left out: no part of a forward pass"
		}
		g.Add(group.Name, fmt.Sprint(group.Tensors), fmt.Sprint(group.Bytes), use)
	}
	g.Print(w)
	fmt.Fprintln(w)
}

func (r *inspection) writeTensors(w io.Writer) {
	if len(r.Tensors) == 0 {
		return
	}
	g := tables.NewGrid("layer", "projection", "tensor", "type", "dims", "files")
	for _, t := range r.Tensors {
		g.Add(fmt.Sprint(t.Layer), t.What, t.Tensor, t.Type, joinDims(t.Dims), filesText(t.Files))
	}
	g.Print(w)
	fmt.Fprintln(w)
}

// filesText names a few files.
func filesText(paths []string) string {
	const most = 2
	var names []string
	for _, p := range paths[:min(len(paths), most)] {
		names = append(names, filepath.Base(p))
	}
	text := strings.Join(names, ", ")
	if more := len(paths) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// rowsText says what is unusual about the rows of a projection, empty if nothing is.
func rowsText(p layout.Projection) string {
	var parts []string
	if p.Fused != "" {
		text, ok := map[layout.Fusion]string{
			layout.GateFirst: "gate, then up", layout.UpFirst: "up, then gate", layout.Interleaved: "gate and up in turn",
		}[p.Fused]
		if !ok {
			text = string(p.Fused)
		}
		parts = append(parts, text)
	}
	if p.Transposed {
		parts = append(parts, "transposed")
	}
	return strings.Join(parts, ", ")
}

// unusual reports that there is something to say of the rows of a projection.
func (r *inspection) unusual() bool {
	for _, record := range r.Records {
		for _, p := range record.Projections {
			if rowsText(p) != "" {
				return true
			}
		}
	}
	return false
}

// countText is "1 file" or "3 files".
func countText(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
