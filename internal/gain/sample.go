package gain

import (
	"fmt"
	"math/rand/v2"

	"outrider/layout"
)

const (
	mostLayers = 8 // of a sample
	sampleSeed = 1 // the same sample each time
)

// sample is a handful of a checkpoint's experts, as a small checkpoint of its own
// over the same files, and the batches in which they are read.
type sample struct {
	cp      layout.Checkpoint
	batches [][]layout.ExpertID // of cp
}

// newSample picks experts of at most so many bytes together.
func newSample(cp *layout.Checkpoint, space int64) (*sample, error) {
	largest := int64(0)
	for l := range cp.Layers {
		largest = max(largest, expertBytes(cp, l))
	}
	count := space / largest // experts that certainly fit
	if count < 1 {
		return nil, fmt.Errorf("gain: %w: %d bytes, but an expert has %d: allow at least that", ErrSpace, space, largest)
	}
	batch := int(min(int64(cp.Shape.TopK), count))
	layers := int(min(int64(cp.Shape.Layers), mostLayers, count/int64(batch)))
	rounds := int(min(int64(cp.Shape.Experts), count/int64(layers))) / batch // batches of a layer

	random := rand.New(rand.NewPCG(sampleSeed, 0))
	s := &sample{cp: layout.Checkpoint{
		Format: cp.Format, Name: cp.Name, Architecture: cp.Architecture, Files: cp.Files,
		Shape:     layout.Shape{Layers: layers, Experts: rounds * batch, TopK: batch},
		NoRouters: "this is a sample of some experts",
	}}
	for i := range layers {
		from := &cp.Layers[i*cp.Shape.Layers/layers]
		s.cp.Layers = append(s.cp.Layers, pick(from, random.Perm(cp.Shape.Experts)[:rounds*batch]))
		for r := range rounds {
			s.batches = append(s.batches, batchOf(i, r, rounds, batch))
		}
	}
	random.Shuffle(len(s.batches), func(i, j int) { s.batches[i], s.batches[j] = s.batches[j], s.batches[i] })
	return s, nil
}

// batchOf takes every rounds-th expert, so that no two of a batch are neighbours
// in the store while there are others.
func batchOf(layer, round, rounds, batch int) (ids []layout.ExpertID) {
	for i := range batch {
		ids = append(ids, layout.ExpertID{Layer: int32(layer), Index: int32(i*rounds + round)})
	}
	return ids
}

// pick is a layer that has some experts only.
func pick(layer *layout.CheckpointLayer, experts []int) (out layout.CheckpointLayer) {
	for _, t := range layer.Tensors {
		picked := layout.ExpertTensor{Projection: t.Projection, Source: t.Source, SourceDims: t.SourceDims}
		for _, e := range experts {
			picked.Each = append(picked.Each, t.Span(e))
		}
		out.Tensors = append(out.Tensors, picked)
	}
	return out
}

// expertBytes is what the tensors of one expert of a layer have.
func expertBytes(cp *layout.Checkpoint, layer int) (n int64) {
	for i := range cp.Layers[layer].Tensors {
		n += cp.Layers[layer].Tensors[i].Bytes
	}
	return n
}

// bytes is what the tensors of a batch have.
func (s *sample) bytes(ids []layout.ExpertID) (n int64) {
	for _, id := range ids {
		n += expertBytes(&s.cp, int(id.Layer))
	}
	return n
}
