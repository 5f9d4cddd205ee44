package layout

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// ExpertMark stands for an expert's number in the name of a source tensor where each
// expert has its own.
const ExpertMark = "{expert}"

// maxTensorDims bounds the dimensions of a source tensor.
const maxTensorDims = 8

// ManifestTensor is a tensor of the checkpoint that experts were taken from.
type ManifestTensor struct {
	// Name is the checkpoint's; with ExpertMark in it there is one such tensor for
	// each expert, otherwise the experts of the layer lie in it one after another.
	Name string `json:"name"`
	// Dims are those of the whole tensor, fastest first.
	Dims []int64 `json:"dims"`
}

// PerExpert reports whether each expert has such a tensor of its own.
func (t *ManifestTensor) PerExpert() bool { return strings.Contains(t.Name, ExpertMark) }

// sourceTensors lists for each layer where its projections came from, in the order of
// its form; nil if the checkpoint's description does not know.
func (s *spanReader) sourceTensors() [][]ManifestTensor {
	out := make([][]ManifestTensor, len(s.cp.Layers))
	known := false
	for l := range s.cp.Layers {
		for _, i := range s.from[l] {
			t := &s.cp.Layers[l].Tensors[i]
			if t.Source == "" {
				return nil
			}
			known = known || t.SourceDims != nil
			out[l] = append(out[l], ManifestTensor{Name: t.Source, Dims: append([]int64{}, t.SourceDims...)})
		}
	}
	if !known {
		return nil
	}
	return out
}

// checkTensors reports the first thing that is wrong with the source tensors.
func (m *Manifest) checkTensors() error {
	tensors := m.Source.Tensors
	if tensors == nil {
		return nil // of a builder that did not keep them
	}
	if len(tensors) != m.Shape.Layers {
		return fmt.Errorf("source tensors of %d layers, want %d", len(tensors), m.Shape.Layers)
	}
	for l := range tensors {
		if got, want := len(tensors[l]), len(m.Forms[m.Layers[l]].Projections); got != want {
			return fmt.Errorf("layer %d has %d source tensors, want %d", l, got, want)
		}
		for _, t := range tensors[l] {
			if t.Name == "" || !utf8.ValidString(t.Name) || len(t.Dims) > maxTensorDims {
				return fmt.Errorf("layer %d has a source tensor %.40q of %d dimensions, want a name and at most %d", l, t.Name, len(t.Dims), maxTensorDims)
			}
			for _, d := range t.Dims {
				if d < 0 {
					return fmt.Errorf("layer %d: source tensor %.40q has a dimension of %d", l, t.Name, d)
				}
			}
		}
	}
	return nil
}
