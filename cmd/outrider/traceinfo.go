package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"outrider/internal/tables"
	"outrider/trace"
)

type traceInfoCmd struct {
	Trace     []string `arg:"" help:"Routing data: one file, the files of one recording, or their folder."`
	MaxTokens int      `help:"Look at this many tokens only; 0 means all." default:"0" placeholder:"N"`
	recording
}

func (traceInfoCmd) Help() string {
	return "Entropy is that of the expert load in bits, log2(experts) when even. Reuse is the share of uses whose expert " +
		"the token before had used too, with what chance would give beside it. Information is how many bits one expert of " +
		"the token before, or of the layer before, tells about one of this token's. Warnings say what looks wrong with the recording: " +
		"sequences that interleave under one number, or a layer whose rows are out of step." + recordingHelp + statusHelp
}

// traceSummary is what --json prints.
type traceSummary struct {
	Kind      string         `json:"kind"` // "trace"
	Path      string         `json:"path"`
	Form      string         `json:"form"`
	Notes     []string       `json:"notes,omitempty"`    // of the importer
	Warnings  []string       `json:"warnings,omitempty"` // of the checks
	IDs       string         `json:"id_space"`
	Ranked    string         `json:"ranked"`
	Sequenced string         `json:"sequenced"`
	Model     string         `json:"model"`
	Source    string         `json:"source,omitempty"`
	Note      string         `json:"note,omitempty"`
	Layers    int            `json:"layers"`
	Experts   int            `json:"experts"`
	TopK      int            `json:"top_k"`
	Weights   bool           `json:"weights"`
	TokenIDs  bool           `json:"token_ids"`
	Tokens    int64          `json:"tokens"`
	Sequences int64          `json:"sequences"`
	Prefill   int64          `json:"prefill_tokens"`
	Decode    int64          `json:"decode_tokens"`
	Unknown   int64          `json:"unknown_tokens"`
	Cycle     float64        `json:"cycle"`
	MaxCycle  int            `json:"max_cycle"`
	Informed  bool           `json:"informed"` // the information figures were measured
	Uniform   bool           `json:"uniform"`
	Hint      string         `json:"hint,omitempty"`
	PerLayer  []layerSummary `json:"per_layer"`
	Complete  bool           `json:"complete"` // the whole trace was read
}

type layerSummary struct {
	Layer       int     `json:"layer"`
	Block       int     `json:"block"`
	Entropy     float64 `json:"entropy_bits"`
	MaxMean     float64 `json:"max_over_mean_load"`
	Reuse       float64 `json:"reuse"`
	ReuseChance float64 `json:"reuse_chance"`
	TokenInfo   float64 `json:"token_info_bits"`
	LayerInfo   float64 `json:"layer_info_bits"`
}

// Run prints a trace's header and statistics. Of a torn or damaged trace it
// prints what came before the damage, and then fails.
func (c *traceInfoCmd) Run(ctx context.Context, a *app) error {
	if c.MaxTokens < 0 {
		return usagef("--max-tokens is %d, want 0 (all) or more", c.MaxTokens)
	}
	in, err := c.open(c.Trace...)
	if err != nil {
		return err
	}
	defer in.Close() // nothing was written
	if in.Histogram != nil {
		s := summariseHistogram(c.Trace, in)
		return a.print(s, s.writeTo)
	}
	stats, damage := trace.Collect(a.watch(ctx, in), c.MaxTokens)
	if damage != nil && (stats == nil || stats.Tokens == 0 || ctx.Err() != nil) {
		return damage
	}
	s := summarise(c.Trace, stats)
	s.Complete = damage == nil && (c.MaxTokens == 0 || stats.Tokens < int64(c.MaxTokens) || ended(in))
	s.Form, s.Notes = in.Form.Name, in.Notes()
	return errors.Join(a.print(s, s.writeTo), damage)
}

// ended reports whether a stream that was not read to its end is at its end.
func ended(s trace.Stream) bool {
	var next trace.Activation
	return errors.Is(s.Next(&next), io.EOF)
}

func summarise(paths []string, stats *trace.Stats) *traceSummary {
	h := stats.Header
	s := &traceSummary{
		Kind: "trace", Path: strings.Join(paths, ", "),
		IDs: h.IDs.String(), Ranked: h.Ranked.String(), Sequenced: h.Sequences.String(),
		Model: h.Model, Source: h.Source, Note: h.Note,
		Layers: h.Shape.Layers, Experts: h.Shape.Experts, TopK: h.Shape.TopK,
		Weights: h.Weights, TokenIDs: h.Tokens,
		Tokens: stats.Tokens, Sequences: stats.Sequences,
		Prefill: stats.Prefill, Decode: stats.Decode, Unknown: stats.Unknown,
		Cycle: stats.Cycle, MaxCycle: stats.MaxCycle,
		Informed: stats.Informed, Uniform: stats.Uniform, Hint: stats.Hint(),
	}
	for l, layer := range stats.Layers {
		s.PerLayer = append(s.PerLayer, layerSummary{
			Layer: l, Block: h.Shape.LayerID(l), Entropy: layer.Entropy, MaxMean: layer.MaxMean,
			Reuse: layer.Reuse, ReuseChance: layer.ReuseChance, TokenInfo: layer.TokenInfo, LayerInfo: layer.LayerInfo,
		})
	}
	for _, w := range stats.Warnings {
		s.Warnings = append(s.Warnings, w.Text)
	}
	return s
}

func (s *traceSummary) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add("trace", "%s", s.Path)
	f.Add("form", "%s", s.Form)
	f.Add("model", "%s", s.Model)
	f.Add("source", "%s", s.Source)
	f.Add("note", "%s", s.Note)
	f.Add("shape", "%d layers x %d experts, top %d", s.Layers, s.Experts, s.TopK)
	more := ""
	if !s.Complete {
		more = ", and more that were not read"
	}
	f.Add("tokens", "%d in %d sequences%s", s.Tokens, s.Sequences, more)
	f.Add("phases", "prefill %d, decode %d, unknown %d", s.Prefill, s.Decode, s.Unknown)
	f.Add("carries", "%s", carried(s))
	f.Add("told", "ids: %s, best expert first: %s, sequences apart: %s", s.IDs, s.Ranked, s.Sequenced)
	f.Add("cycle", "%.1f experts a token on average, at most %d", s.Cycle, s.MaxCycle)
	f.Add("hint", "%s", s.Hint)
	for _, text := range s.Notes {
		f.Add("note", "%s", text)
	}
	for _, text := range s.Warnings {
		f.Add("warning", "%s", text)
	}
	f.Print(w)
	fmt.Fprintln(w)
	g := tables.NewGrid("layer", "block", "entropy", "max/mean", "reuse", "chance", "from token", "from layer")
	for _, l := range s.PerLayer {
		token, layer := "-", "-"
		if s.Informed {
			token, layer = fmt.Sprintf("%.3f", l.TokenInfo), fmt.Sprintf("%.3f", l.LayerInfo)
		}
		g.Add(fmt.Sprint(l.Layer), fmt.Sprint(l.Block), fmt.Sprintf("%.3f", l.Entropy), fmt.Sprintf("%.2f", l.MaxMean),
			fmt.Sprintf("%.3f", l.Reuse), fmt.Sprintf("%.3f", l.ReuseChance), token, layer)
	}
	g.Print(w)
	if !s.Informed {
		fmt.Fprintln(w, "\nfrom token, from layer: not measured, the trace is too short for that (or the model too large)")
	}
}

func carried(s *traceSummary) string {
	switch {
	case s.Weights && s.TokenIDs:
		return "expert ids, gate weights, token ids"
	case s.Weights:
		return "expert ids, gate weights"
	case s.TokenIDs:
		return "expert ids, token ids"
	}
	return "expert ids"
}
