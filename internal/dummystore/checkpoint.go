package dummystore

import (
	"fmt"

	"outrider/layout"
)

const (
	maxRecordBytes = layout.MaxRecordBytes / 2 // what layout takes of a checkpoint
	pageBytes      = 4096
)

// describe makes up a checkpoint whose experts have gate, up and down, as most
// models' have, with recordBytes together.
func describe(shape layout.Shape, recordBytes int64) (layout.Checkpoint, error) {
	if err := shape.Validate(); err != nil {
		return layout.Checkpoint{}, fmt.Errorf("dummystore: %w: %w", layout.ErrCheckpoint, err)
	}
	if recordBytes < 1 || recordBytes > maxRecordBytes {
		return layout.Checkpoint{}, fmt.Errorf("dummystore: %w: records of %d bytes, want 1 to %d",
			layout.ErrCheckpoint, recordBytes, int64(maxRecordBytes))
	}
	cp := layout.Checkpoint{
		Format: Format, Name: fmt.Sprintf("dummy %dx%d, %d bytes an expert", shape.Layers, shape.Experts, recordBytes),
		Architecture: Architecture, Shape: shape,
	}
	var at int64
	for l := range shape.Layers {
		var layer layout.CheckpointLayer
		for _, p := range projections(recordBytes) {
			layer.Tensors = append(layer.Tensors, layout.ExpertTensor{
				Projection: p, Source: fmt.Sprintf("dummy.%d.%s", shape.LayerID(l), p.Name), Offset: at,
			})
			n := p.Bytes * int64(shape.Experts)
			if n > layout.MaxLaneBytes*layout.MaxLanes-at {
				return layout.Checkpoint{}, fmt.Errorf("dummystore: %w: %d experts of %d bytes are more than any store can hold",
					layout.ErrPlan, shape.Count(), recordBytes)
			}
			at += n
		}
		cp.Layers = append(cp.Layers, layer)
	}
	cp.Files = []layout.CheckpointFile{{Path: sourceName, Size: at}}
	return cp, nil
}

// projections cuts a record into three; where they are large, the first two
// have whole pages, so that alignment adds padding at the end only.
func projections(recordBytes int64) []layout.Projection {
	third := recordBytes / 3
	if third >= pageBytes {
		third -= third % pageBytes
	}
	var out []layout.Projection
	for _, p := range []layout.Projection{{Name: "gate", Bytes: third}, {Name: "up", Bytes: third}, {Name: "down", Bytes: recordBytes - 2*third}} {
		if p.Bytes > 0 {
			p.Type, p.Dims = "I8", []int64{p.Bytes, 1}
			out = append(out, p)
		}
	}
	return out
}
