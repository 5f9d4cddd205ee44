package importer

import (
	"bytes"

	"outrider/layout"
	"outrider/trace"
)

// formVLLMNpy is numpy.save of vLLM's CompletionOutput.routed_experts
// (enable_return_routed_experts): whole numbers [tokens - 1, hidden layers, k] of one
// request. The last token was sampled but never routed.
const formVLLMNpy = "vllm-npy"

// sniffVLLMNpy wants three dimensions of whole numbers that look like ids: rows of
// distinct ones, or of zeros. Counts would have equal numbers soon.
func sniffVLLMNpy(p *peek) bool {
	h, err := readNpyHeader(bytes.NewReader(p.head))
	if err != nil || !h.whole() || len(h.shape) != 3 || h.fortran {
		return false
	}
	k := h.shape[2]
	if h.shape[0] < 1 || h.shape[1] < 1 || h.shape[1] > layout.MaxLayers || k < 1 || k > 1024 {
		return false
	}
	width := int(k) * h.width
	routed := false
	for data := p.head[h.size:]; len(data) >= width; data = data[width:] {
		row := make([]int32, k)
		for i := range row {
			row[i] = h.int(data[i*h.width:])
		}
		if k > 1 && allZero(row) {
			continue
		}
		if routed = true; outside(row, layout.MaxExperts) >= 0 || distinct(row, int(k)) != nil {
			return false
		}
	}
	return routed
}

func openVLLMNpy(in *input) (*content, error) {
	a, err := in.files[0].openNpy()
	if err != nil {
		return nil, err
	}
	a.close()
	if err := a.isRouted(); err != nil {
		return nil, err
	}
	layers, topK := a.shape[1], a.shape[2]
	if layers < 1 || topK < 1 || layers > layout.MaxLayers || topK > layout.MaxExperts {
		return nil, a.file.damaged(place{}, "the array is %s, want [tokens, layers, k]", a.form())
	}
	return openRouted(in, &routedForm{name: formVLLMNpy, each: func(fn func(*routedSequence) error) error {
		for _, f := range in.files {
			s := &routedSequence{file: f, prompt: -1, rows: func(fn func(place, []int32) error) error {
				return f.npyRows(layers, topK, fn)
			}}
			if err := fn(s); err != nil {
				return err
			}
		}
		return nil
	}, ids: trace.IDsUnknown}, layout.Shape{Layers: int(layers), TopK: int(topK)})
}

// isRouted is an error if the array is none of ids.
func (a *npyFile) isRouted() error {
	if len(a.shape) != 3 || !a.whole() {
		return a.file.damaged(place{}, "the array is %s, want whole numbers [tokens, layers, k]", a.form())
	}
	return nil
}

// npyRows reads the ids of each token.
func (f *file) npyRows(layers, topK int64, fn func(at place, ids []int32) error) error {
	a, err := f.openNpy()
	if err != nil {
		return err
	}
	defer a.close()
	if err := a.isRouted(); err != nil {
		return err
	}
	if a.shape[1] != layers || a.shape[2] != topK {
		return f.damaged(place{}, "the array is %s, but the first file's has %d layers of %d ids", a.form(), layers, topK)
	}
	ids := make([]int32, layers*topK)
	for range a.shape[0] {
		at := place{offset: a.at}
		b, err := a.next(len(ids))
		if err != nil {
			return err
		}
		for i := range ids {
			ids[i] = a.int(b[i*a.width:])
		}
		if err := fn(at, ids); err != nil {
			return err
		}
	}
	return a.end()
}
