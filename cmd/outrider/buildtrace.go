package main

import (
	"context"
	"errors"
	"io"

	"outrider/layout"
	"outrider/trace"
)

// readHistory reads a trace of a model of this shape.
func readHistory(ctx context.Context, a *app, path string, shape layout.Shape) (*trace.History, error) {
	in, err := recording{}.open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() // nothing was written
	if err := in.NoOrder(); err != nil {
		return nil, err
	}
	if got := in.Header().Shape; !got.SameSize(shape) {
		return nil, inputf("the trace %s is of another model: it has %s, the checkpoint has %s", path, shapeText(got), shapeText(shape))
	}
	history, err := trace.NewHistory(shape)
	if err != nil {
		return nil, err
	}
	stream := a.watch(ctx, in)
	var activation trace.Activation
	for {
		err := stream.Next(&activation)
		if errors.Is(err, io.EOF) {
			return history, ctx.Err()
		}
		if err == nil {
			err = history.Add(&activation)
		}
		if err != nil {
			return nil, err
		}
	}
}

// togetherness lines up each layer's experts by how often a trace used them together.
func togetherness(history *trace.History) [][]int32 {
	shape := history.Shape()
	order := make([][]int32, shape.Layers)
	for l := range order {
		order[l] = layout.CoactivationOrder(shape.Experts, func(x, y int) uint64 {
			return history.Coactivation(l, int32(x), int32(y))
		})
	}
	return order
}

// heat is how often a trace used an expert.
func heat(history *trace.History) func(layout.ExpertID) float64 {
	return func(id layout.ExpertID) float64 { return float64(history.Uses(int(id.Layer), id.Index)) }
}
