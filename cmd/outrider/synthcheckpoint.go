package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"outrider/internal/synthckpt"
)

type synthCheckpointCmd struct {
	Family  string `required:"" help:"The family; synth families lists them." placeholder:"NAME"`
	Out     string `short:"o" help:"What to write, which must not exist: a file ending in .gguf, or a folder for safetensors; without it, one in the working folder, named after the family and the seed." placeholder:"PATH"`
	Format  string `help:"gguf or safetensors; without it GGUF, if the family has that form." enum:"gguf,safetensors," default:"" placeholder:"FORMAT"`
	Layers  int    `help:"Blocks of the model, without those that predict further tokens (${default})." default:"4" placeholder:"N"`
	Experts int    `help:"Routed experts of a layer (${default})." default:"8" placeholder:"N"`
	TopK    int    `help:"Experts chosen for a token (${default})." default:"2" placeholder:"N"`
	Hidden  int    `help:"Width of the model, rounded up to what the family's types need (${default})." default:"64" placeholder:"N"`
	FFN     int    `name:"ffn" help:"Width of an expert, rounded up likewise (${default})." default:"96" placeholder:"N"`
	Shards  int    `help:"Files of weights (${default})." default:"1" placeholder:"N"`
	Seed    uint64 `help:"The same seed gives the same bytes, on every machine (${default})." default:"1" placeholder:"N"`
}

func (synthCheckpointCmd) Help() string {
	return "The tensors have the names, shapes and types of the published models, with made-up numbers, also those that are no experts; " +
		"metadata or config.json says what theirs says. With several shards, a GGUF checkpoint is named by its first one." + statusHelp
}

// synthCheckpoint is what --json prints.
type synthCheckpoint struct {
	synthckpt.Info
	Out          string   `json:"out"`
	Architecture string   `json:"architecture"`
	Layers       int      `json:"layers"`
	Experts      int      `json:"experts"`
	TopK         int      `json:"top_k"`
	Hidden       int      `json:"hidden"`
	FFN          int      `json:"ffn"`
	Tensors      int      `json:"tensors"`
	Bytes        int64    `json:"bytes"`
	RoutedBytes  int64    `json:"routed_bytes"`
	Seed         uint64   `json:"seed"`
	Files        []string `json:"files"`
}

// Run makes a synthetic checkpoint.
func (c *synthCheckpointCmd) Run(ctx context.Context, a *app) error {
	model, err := synthckpt.Plan(synthckpt.Options{
		Family: c.Family, Format: c.Format, Layers: c.Layers, Experts: c.Experts, TopK: c.TopK,
		Hidden: c.Hidden, FFN: c.FFN, Seed: c.Seed,
	})
	if err != nil {
		return usageError{message(ctx, err)}
	}
	if c.Shards < 1 {
		return usagef("--shards %d: want 1 or more", c.Shards)
	}
	if c.Out == "" {
		c.Out = fmt.Sprintf("%s-%d", c.Family, c.Seed)
		if model.Format == synthckpt.GGUF {
			c.Out += ".gguf"
		}
	}
	bar := a.progress("writing", inBytes)
	report, err := model.Write(ctx, synthckpt.Target{Out: c.Out, Shards: c.Shards, Progress: bar.set})
	bar.finish()
	switch {
	case errors.Is(err, synthckpt.ErrOptions):
		return usageError{message(ctx, err)}
	case err != nil:
		return err
	}
	s := synthCheckpoint{
		Info: model.Info, Out: c.Out, Architecture: model.Architecture,
		Layers: model.Shape.Layers, Experts: model.Shape.Experts, TopK: model.Shape.TopK, Hidden: model.Hidden, FFN: model.FFN,
		Tensors: len(model.Tensors), Bytes: report.TensorBytes, RoutedBytes: model.RoutedBytes(), Seed: c.Seed, Files: report.Files,
	}
	return a.print(s, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %s as %s, %d MoE layers of %d experts, top %d, hidden %d, experts' width %d\n",
			s.Files[0], s.Name, s.Format, s.Layers, s.Experts, s.TopK, s.Hidden, s.FFN)
		fmt.Fprintf(w, "%d files, %d tensors, %s, of them experts %s\n", len(s.Files), s.Tensors, bytesText(s.Bytes), bytesText(s.RoutedBytes))
	})
}
