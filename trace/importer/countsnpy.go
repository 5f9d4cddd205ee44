package importer

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// formCountsNpy is a NumPy array of how often each expert was used: [tables,
// layers, experts], as MoE-Infinity saves its expert activation matrices (one a
// sequence), or [layers, experts], as deepseek-ai/EPLB takes its weight. Whether
// the numbers are tokens, shares or weighted counts the array does not tell.
const formCountsNpy = "counts-npy"

// maxTables is the most tables of a histogram that are kept apart.
const maxTables = 1 << 18

// sniffCountsNpy wants fractions, or two dimensions: three of whole numbers may be ids.
func sniffCountsNpy(p *peek) bool {
	h, err := readNpyHeader(bytes.NewReader(p.head))
	if err != nil {
		return false
	}
	return len(h.shape) == 2 || (len(h.shape) == 3 && !h.whole())
}

func openCountsNpy(in *input) (*content, error) {
	if err := in.onlyNpy(); err != nil {
		return nil, err
	}
	h := &trace.Histogram{Source: in.sourceText(formCountsNpy)}
	tables := false
	for _, f := range in.files {
		many, err := f.addCounts(in, h)
		if err != nil {
			return nil, err
		}
		tables = tables || many
	}
	if ids := in.opts.LayerIDs; len(ids) == h.Layers {
		h.LayerIDs = ids
	}
	h.TopK = in.opts.TopK
	if tables {
		in.note("each table is one step of the array's first dimension: a sequence for MoE-Infinity; the array does not tell.")
	}
	return &content{histogram: h}, nil
}

// onlyNpy leaves files of another kind out of a folder.
func (in *input) onlyNpy() error {
	if in.folder == "" {
		return nil
	}
	var arrays []*file
	for _, f := range in.files {
		if strings.HasSuffix(f.name(), ".npy") {
			arrays = append(arrays, f)
		}
	}
	if len(arrays) == 0 {
		return fmt.Errorf("the folder %s holds no .npy file", in.folder)
	}
	if n := len(in.files) - len(arrays); n > 0 {
		in.note("%d files of the folder are no .npy and were left out.", n)
	}
	in.files = arrays
	return nil
}

// addCounts adds a file's tables, and tells whether it may have several.
func (f *file) addCounts(in *input, h *trace.Histogram) (several bool, err error) {
	a, err := f.openNpy()
	if err != nil {
		return false, err
	}
	defer a.close()
	tables := int64(1)
	switch len(a.shape) {
	case 2:
	case 3:
		several, tables = true, a.shape[0]
	default:
		return false, f.damaged(place{}, "the array is %s, want [layers, experts] or [tables, layers, experts]", a.form())
	}
	layers, experts := a.shape[len(a.shape)-2], a.shape[len(a.shape)-1]
	if tables < 1 || layers < 1 || layers > layout.MaxLayers || experts < 1 || experts > layout.MaxExperts || tables > maxTables {
		return false, f.damaged(place{}, "the array is %s, want some tables, at most %d, of a model's layers and experts", a.form(), maxTables)
	}
	if err := f.sameModel(in, h, int(layers), int(experts)); err != nil {
		return false, err
	}
	if n := (int64(len(h.Tables)) + tables) * layers * experts; n > trace.MaxHistogram {
		return false, f.damaged(place{}, "with this array of %s there are %d counts, the limit is %d: name fewer files", a.form(), n, trace.MaxHistogram)
	}
	label := ""
	if len(in.files) > 1 {
		label = strings.TrimSuffix(filepath.Base(f.name()), ".npy")
	}
	for i := range tables {
		t := trace.Counts{Label: label}
		if several {
			t.Label = strings.TrimPrefix(fmt.Sprintf("%s/%d", label, i), "/")
		}
		if t.Counts, err = a.table(h.Layers, h.Experts); err != nil {
			return false, err
		}
		h.Tables = append(h.Tables, t)
	}
	return several, a.end()
}

// sameModel takes the shape from the first array; the others must have the same.
func (f *file) sameModel(in *input, h *trace.Histogram, layers, experts int) error {
	if h.Layers == 0 {
		s, err := in.shape(layout.Shape{Layers: layers, Experts: experts, TopK: max(in.opts.TopK, 1)})
		if err != nil {
			return err
		}
		h.Layers, h.Experts = s.Layers, s.Experts
	}
	if h.Layers != layers || h.Experts != experts {
		return f.damaged(place{}, "the array has %d layers of %d experts, but the first file's has %d of %d", layers, experts, h.Layers, h.Experts)
	}
	return nil
}

// table reads the counts of all layers.
func (a *npyFile) table(layers, experts int) ([][]float64, error) {
	var rows [][]float64
	for range layers {
		at := place{offset: a.at}
		b, err := a.next(experts)
		if err != nil {
			return nil, err
		}
		row := make([]float64, experts)
		for e := range row {
			if row[e] = a.float(b[e*a.width:]); !(row[e] >= 0) {
				return nil, a.file.damaged(at, "layer %d, expert %d: the count is %v, want a number of 0 or more", len(rows), e, row[e])
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}
