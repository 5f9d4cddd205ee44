package main

import (
	"outrider/layout"
	"outrider/layout/checkpoint"
)

// checkpointHelp says what may be named as a checkpoint.
const checkpointHelp = "A GGUF or safetensors file, any shard of a split model, its index, or its folder."

// readingFlags say how a checkpoint is to be understood where its files leave it open.
type readingFlags struct {
	TopK    int  `name:"top-k" help:"Experts that a token uses of each layer, where the checkpoint does not say." placeholder:"N"`
	Predict bool `help:"Take the blocks that predict further tokens (MTP, next-n) as layers too; else they are left out."`
}

// read describes a checkpoint.
func (f readingFlags) read(fsys layout.FS, path string) (layout.Checkpoint, error) {
	if f.TopK < 0 {
		return layout.Checkpoint{}, usagef("--top-k is %d, want 1 or more", f.TopK)
	}
	return checkpoint.ReadWith(fsys, path, checkpoint.Options{TopK: f.TopK, Predict: f.Predict})
}

// open opens a store's folder or a checkpoint. The caller closes the source.
func (f readingFlags) open(fsys layout.FS, path string, mode layout.Mode) (*model, error) {
	if f.TopK < 0 {
		return nil, usagef("--top-k is %d, want 1 or more", f.TopK)
	}
	m, err := checkpoint.OpenWith(fsys, path, mode, checkpoint.Options{TopK: f.TopK, Predict: f.Predict})
	if err != nil {
		return nil, err
	}
	return &model{Model: m, path: path}, nil
}
