package importer

import (
	"fmt"

	"outrider/trace"
)

// formTRTCounts is TensorRT-LLM's expert statistic: a table an iteration, summed
// over the ranks, as TensorRT-LLM's own tools do.
const formTRTCounts = "trtllm-statistic"

func sniffTRTCounts(p *peek) bool { return p.trtNames(trtCountsName) && !p.trtNames(trtRawName) }

func openTRTCounts(in *input) (*content, error) {
	s, err := openTRT(in, trtCountsName)
	if err != nil {
		return nil, err
	}
	h := &trace.Histogram{
		Layers: s.shape.Layers, LayerIDs: s.shape.LayerIDs, Experts: s.shape.Experts, TopK: s.shape.TopK,
		Unit: "tokens", Source: in.sourceText(formTRTCounts),
	}
	cells := s.shape.Layers * s.shape.Experts
	apart := len(s.iterations) <= maxSteps && len(s.iterations) <= trace.MaxHistogram/cells
	if !apart {
		in.note("the %d iterations were summed up.", len(s.iterations))
	}
	for _, iteration := range s.iterations {
		if apart {
			h.Tables = append(h.Tables, newTable(fmt.Sprintf("iteration %d", iteration), s))
		} else if len(h.Tables) == 0 {
			h.Tables = append(h.Tables, newTable("", s))
		}
		if err := s.addCounts(iteration, h.Tables[len(h.Tables)-1].Counts); err != nil {
			return nil, err
		}
	}
	if len(s.ranks) > 1 {
		in.note("the counts of %d ranks were summed up. Without attention data parallelism all ranks count the same tokens: then name the files of one rank.", len(s.ranks))
	}
	return &content{histogram: h}, nil
}

func newTable(label string, s *trtStatistic) trace.Counts {
	t := trace.Counts{Label: label, Counts: make([][]float64, s.shape.Layers)}
	for l := range t.Counts {
		t.Counts[l] = make([]float64, s.shape.Experts)
	}
	return t
}

// addCounts adds what all ranks counted in an iteration.
func (s *trtStatistic) addCounts(iteration int, counts [][]float64) error {
	for l, layer := range s.layers {
		p, found := trtPlace{iteration, layer}, false
		for i := range s.ranks {
			r := &s.ranks[i]
			_, ints, there, err := r.ints(p, 1)
			if err != nil {
				return err
			}
			if !there {
				continue
			}
			if found = true; len(ints) != s.shape.Experts {
				return r.file.damaged(place{}, "tensor %q has %d counts, want one for each of %d experts", p.key(), len(ints), s.shape.Experts)
			}
			for e, n := range ints {
				if n < 0 {
					return r.file.damaged(place{}, "tensor %q: expert %d was used %d times", p.key(), e, n)
				}
				counts[l][e] += float64(n)
			}
		}
		if !found {
			return s.ranks[0].file.damaged(place{}, "tensor %q is missing: iteration %d has no counts of layer %d", p.key(), iteration, layer)
		}
	}
	return nil
}
