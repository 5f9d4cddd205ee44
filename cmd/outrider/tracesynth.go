package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"outrider/layout"
	"outrider/trace"
	"outrider/trace/synth"
)

type traceSynthCmd struct {
	Kind       string  `arg:"" enum:"uniform,zipf,markov,domains" help:"uniform: nothing can be learned; zipf: skewed load; markov: layers and tokens follow each other; domains: markov that changes again and again."`
	Out        string  `required:"" short:"o" help:"The file to write, which must not exist: .trace binary, .jsonl JSON lines, with .gz or .zst compressed." placeholder:"FILE"`
	Layers     int     `help:"MoE layers (${default})." default:"24" placeholder:"N"`
	Experts    int     `help:"Experts of a layer (${default})." default:"64" placeholder:"N"`
	TopK       int     `help:"Experts chosen for a token (${default})." default:"6" placeholder:"N"`
	Tokens     int     `help:"Tokens in all (${default})." default:"10000" placeholder:"N"`
	Sequences  int     `help:"Sequences, one after the other (${default})." default:"10" placeholder:"N"`
	Prompt     int     `help:"Tokens at the start of each sequence that are prefill (${default})." default:"0" placeholder:"N"`
	Seed       uint64  `help:"The same seed gives the same trace, on every machine (${default})." default:"1" placeholder:"N"`
	Skew       float64 `help:"Exponent of the load; 0 takes 1 for zipf and 0.5 for markov and domains, below 0 an even load." default:"0" placeholder:"S"`
	LayerPull  float64 `help:"Share of draws that follow the layer before (markov, domains); 0 takes 0.45, below 0 none." default:"0" placeholder:"SHARE"`
	PastPull   float64 `help:"Share of draws that follow the token before (markov, domains); 0 takes 0.25, below 0 none." default:"0" placeholder:"SHARE"`
	Domains    int     `help:"Domains; 0 takes 4." default:"0" placeholder:"N"`
	Dwell      int     `help:"Mean tokens until a sequence changes its domain; 0 takes 200." default:"0" placeholder:"N"`
	Vocabulary int     `help:"Token ids; 0 takes 32000." default:"0" placeholder:"N"`
}

func (traceSynthCmd) Help() string {
	return "The header's source names the generator, the seed and the options, so that a trace can be made again." + statusHelp
}

// synthesis is what --json prints.
type synthesis struct {
	Out    string `json:"out"`
	Kind   string `json:"kind"`
	Tokens int64  `json:"tokens"`
	Bytes  int64  `json:"bytes"`
	Source string `json:"source"`
}

// Run makes a synthetic trace.
func (c *traceSynthCmd) Run(ctx context.Context, a *app) error {
	stream, err := synth.New(synth.Kind(c.Kind), synth.Options{
		Shape:  layout.Shape{Layers: c.Layers, Experts: c.Experts, TopK: c.TopK},
		Tokens: c.Tokens, Sequences: c.Sequences, Prompt: c.Prompt, Seed: c.Seed,
		Skew: c.Skew, LayerPull: c.LayerPull, PastPull: c.PastPull, Domains: c.Domains, Dwell: c.Dwell, Vocabulary: c.Vocabulary,
	})
	if err != nil {
		return usageError{message(ctx, err)}
	}
	out, err := trace.Create(c.Out, stream.Header())
	if err != nil {
		return err
	}
	bar := a.progress("making", "tokens")
	n, err := copyTrace(ctx, out, stream, 0, func(n int64) { bar.set(n, int64(c.Tokens)) })
	bar.finish()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return errors.Join(err, os.Remove(c.Out))
	}
	info, err := os.Stat(c.Out)
	if err != nil {
		return err
	}
	s := synthesis{Out: c.Out, Kind: c.Kind, Tokens: n, Bytes: info.Size(), Source: stream.Header().Source}
	return a.print(s, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d tokens, %s, %s\n", s.Out, s.Tokens, s.Source, bytesText(s.Bytes))
	})
}
