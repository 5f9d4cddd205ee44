package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"outrider/trace"
	"outrider/trace/importer"
)

// recording is how a command is told of routing data: the form it is in, and
// what that form does not tell.
type recording struct {
	From     string `help:"The form of the data (see outrider trace forms); found by content if not given." placeholder:"FORM"`
	Layers   int    `help:"MoE layers of the model, where the form does not tell." placeholder:"N"`
	Experts  int    `help:"Experts of a layer, where the form does not tell." placeholder:"N"`
	TopK     int    `help:"Experts chosen for a token, where the form does not tell." placeholder:"N"`
	LayerIDs []int  `help:"Block number of each MoE layer, where the form numbers them from 0." placeholder:"N" name:"layer-ids"`
	Model    string `help:"The model's name, where the form does not tell." placeholder:"NAME"`
	Prompt   int    `help:"Tokens of each sequence that are its prompt, where prompt and output are in one; 0: phases are not known." default:"0" placeholder:"N"`
}

const recordingHelp = " TRACE is a file, or a folder with the files of one recording, of any form that outrider trace forms lists; plain, gzip or zstd."

// open opens routing data of any form.
func (r recording) open(paths ...string) (*importer.Import, error) {
	if r.Layers < 0 || r.Experts < 0 || r.TopK < 0 || r.Prompt < 0 {
		return nil, usagef("--layers, --experts, --top-k and --prompt are %d, %d, %d and %d, want 0 (not told) or more", r.Layers, r.Experts, r.TopK, r.Prompt)
	}
	in, err := importer.Open(paths, importer.Options{
		From: r.From, Layers: r.Layers, LayerIDs: r.LayerIDs, Experts: r.Experts, TopK: r.TopK, Model: r.Model, Prompt: r.Prompt,
	})
	if errors.Is(err, importer.ErrUnknownForm) && r.From != "" {
		return nil, usageError{"--from: " + message(context.Background(), err)}
	}
	return in, err
}

// tokens reads a trace into memory, where tokens in order are needed.
func (r recording) tokens(ctx context.Context, a *app, limit int, paths ...string) (*trace.Trace, error) {
	in, err := r.open(paths...)
	if err != nil {
		return nil, err
	}
	defer in.Close() // nothing was written
	if err := in.NoOrder(); err != nil {
		return nil, err
	}
	t, err := trace.ReadAll(a.watch(ctx, in), limit)
	var torn *trace.TornError
	switch {
	case errors.As(err, &torn) && torn.Tokens > 0:
		return nil, fmt.Errorf("%w; replay those with --max-tokens %d", err, torn.Tokens)
	case err != nil:
		return nil, err
	case t.Len() == 0:
		return nil, inputf("the trace %s holds no tokens", strings.Join(paths, ", "))
	}
	a.warn(in.Notes()...)
	return t, nil
}

// watched is a stream that ends with its context and tells how far it is.
type watched struct {
	trace.Stream
	ctx      context.Context
	progress *progress
	tokens   int64
}

func (a *app) watch(ctx context.Context, s trace.Stream) *watched {
	return &watched{Stream: s, ctx: ctx, progress: a.progress("reading", "tokens")}
}

func (s *watched) Next(a *trace.Activation) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if s.tokens++; s.tokens%256 == 0 {
		s.progress.count(s.tokens)
	}
	return s.Stream.Next(a)
}
