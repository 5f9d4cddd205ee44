package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"outrider/internal/refmodel"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/runtime"
	"outrider/testdata/tinymoe"
)

type demoCmd struct {
	Budget amount `help:"Memory for experts of the two arms that stream: a share of what all experts take, or bytes (${default})." default:"25%" placeholder:"25%|4MiB"`
	Dir    string `help:"Where to make the temporary folder; by default the system's place for such." placeholder:"FOLDER"`

	// For tests, which have less time.
	Rounds int `hidden:"" default:"3"`
	Tokens int `hidden:"" default:"128"` // of each prompt
}

func (demoCmd) Help() string {
	return "Lays out the small model inside this program and generates the same text three times: resident (all experts in " +
		"memory), demand (least recently used kept, read when the router asks), and outrider (kept and read ahead by forecast). " +
		"The arms take turns over some rounds, each from an empty state; figures are medians, of decoding only. Exposed stall is the time layers waited " +
		"for weights. The temporary folder (about 32 MB) is removed at the end." + statusHelp
}

const (
	demoLeast = 2 // rounds, however slow the machine is
	// demoPatience is when a round more would take too long.
	demoPatience = 40 * time.Second
)

// demoPrompts are one a domain of the model's training text.
var demoPrompts = []struct{ domain, text string }{
	{"scripture", "And it came to pass in those days, that"},
	{"prose", "She was not at all surprised to see him; but when"},
	{"code", "func (b *Buffer) Write(p []byte) (n int, err error) {\n"},
	{"docs", "=head1 DESCRIPTION\n\nThis module provides a function that"},
}

// arm is one way to run the model.
type arm struct {
	name    string
	options runtime.Options
	preload bool
	rounds  []armRound
}

type armRound struct {
	decode cost
	budget int64
	direct bool
	reason string
	texts  []demoText
}

type demoText struct {
	Domain string `json:"domain"`
	Prompt string `json:"prompt"`
	Text   string `json:"text"`
	ids    []int32
}

// demoSummary is what --json prints.
type demoSummary struct {
	TextEqual bool      `json:"text_equal"`
	Rounds    int       `json:"rounds"`
	Arms      []demoArm `json:"arms"`
	// StallRatio is the outrider arm's stall over the demand arm's, HitsGain
	// its hits less the demand arm's in points of a hundred.
	StallRatio float64    `json:"stall_ratio"`
	HitsGain   float64    `json:"hits_gain_points"`
	Text       []demoText `json:"text"`
}

type demoArm struct {
	Name        string `json:"name"`
	BudgetBytes int64  `json:"budget_bytes"`
	costs
	Direct   bool   `json:"direct"`
	Fallback string `json:"fallback,omitempty"`
}

// Run shows the whole flow.
func (c *demoCmd) Run(ctx context.Context, a *app) (err error) {
	if c.Rounds < 1 || c.Tokens < 1 {
		return usagef("--rounds is %d and --tokens %d, want 1 or more", c.Rounds, c.Tokens)
	}
	parent := c.Dir
	if parent == "" {
		parent = os.TempDir()
	}
	folder, err := os.MkdirTemp(parent, "outrider-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w: name another folder with --dir", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()

	store, dense, err := c.layOut(ctx, a, folder)
	if err != nil {
		return err
	}
	arms, err := c.arms(store)
	if err != nil {
		return err
	}
	if err := c.playRounds(ctx, a, player{store: store, dense: dense, tokens: c.Tokens}, arms); err != nil {
		return err
	}
	s := summariseDemo(arms)
	if err := a.print(s, s.writeTo); err != nil || s.TextEqual {
		return err
	}
	return wrongError{"the arms wrote different texts: weights were not the same"}
}

// layOut writes the model's file and builds a store of it.
func (c *demoCmd) layOut(ctx context.Context, a *app, folder string) (string, *refmodel.Model, error) {
	path, store := filepath.Join(folder, tinymoe.FileName), filepath.Join(folder, "tinymoe.outrider")
	if err := writeModel(path); err != nil {
		return "", nil, fmt.Errorf("demo: write the model: %w", err)
	}
	fsys := layout.OS()
	cp, err := checkpoint.Read(fsys, path)
	if err != nil {
		return "", nil, err
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{})
	if err != nil {
		return "", nil, err
	}
	began := a.now()
	report, err := layout.Build(ctx, layout.BuildOptions{FS: fsys, Dir: store, Plan: plan, Checkpoint: &cp})
	if err != nil {
		return "", nil, err
	}
	a.say("%s: %d layers x %d experts, top %d; %d experts of %s laid out in %.2f s",
		cp.Name, cp.Shape.Layers, cp.Shape.Experts, cp.Shape.TopK, report.Records,
		bytesText(report.DataBytes/int64(report.Records)), a.now().Sub(began).Seconds())
	dense, err := refmodel.Load(fsys, path)
	return store, dense, err
}

func writeModel(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, tinymoe.Open())
	return errors.Join(err, f.Close())
}

// arms are what is compared. Budgets count the store's slots as the runtime will
// have them: how it reads decides what a slot holds beside its expert.
func (c *demoCmd) arms(store string) ([]*arm, error) {
	m, err := openModel(layout.OS(), store, layout.Direct)
	if err != nil {
		return nil, err
	}
	total := m.slotBytes()
	budget := c.Budget.of(total)
	return []*arm{
		{name: "resident", options: runtime.Options{BudgetBytes: total}, preload: true},
		{name: "demand", options: runtime.Options{BudgetBytes: budget, Keep: runtime.KeepLRU}},
		{name: "outrider", options: runtime.Options{BudgetBytes: budget}},
	}, m.source.Close()
}

// player has what each arm runs.
type player struct {
	store  string
	dense  *refmodel.Model
	tokens int
}

// playRounds lets the arms take turns, a different one first in each round.
func (c *demoCmd) playRounds(ctx context.Context, a *app, p player, arms []*arm) error {
	bar := a.progress("generating", false)
	defer bar.finish()
	began := a.now()
	total := int64(c.Rounds * len(arms) * len(demoPrompts))
	for round := range c.Rounds {
		if spent := a.now().Sub(began); round >= demoLeast && spent+spent/time.Duration(round) > demoPatience {
			break
		}
		for i := range arms {
			arm := arms[(round+i)%len(arms)]
			done := int64((round*len(arms) + i) * len(demoPrompts))
			tell := func(texts int) { bar.set(done+int64(texts), total) }
			result, err := p.play(ctx, a, arm, tell)
			if err != nil {
				return fmt.Errorf("demo: arm %s: %w", arm.name, err)
			}
			arm.rounds = append(arm.rounds, result)
		}
	}
	return nil
}

// play generates all texts once, from an empty state.
func (p player) play(ctx context.Context, a *app, arm *arm, tell func(texts int)) (out armRound, err error) {
	rt, err := runtime.Open(ctx, p.store, arm.options)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, rt.Close()) }()
	if arm.preload {
		if err := rt.Preload(ctx); err != nil {
			return out, err
		}
	}
	g, err := refmodel.New(p.dense, rt, refmodel.Options{IgnoreEnd: true})
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	for i, prompt := range demoPrompts {
		// Greedy text of so small a model falls into loops, which flatter every cache.
		sampler, err := refmodel.NewNucleus(refmodel.NucleusOptions{Temperature: 0.8, TopP: 0.95, Seed: 1})
		if err != nil {
			return out, err
		}
		text, err := generate(ctx, a, g, request{runtime: rt, prompt: p.dense.Tokenizer.Encode(prompt.text), tokens: p.tokens, sampler: sampler})
		if err != nil {
			return out, err
		}
		out.decode.add(text.decode)
		out.texts = append(out.texts, demoText{Domain: prompt.domain, Prompt: prompt.text, Text: text.Text, ids: text.Tokens})
		tell(i + 1)
	}
	stats := rt.Stats()
	out.budget = stats.Memory.Budget
	out.direct, out.reason = lanesRead(stats)
	return out, nil
}

// equal reports whether two rounds wrote the same tokens.
func (r armRound) equal(o armRound) bool {
	return slices.EqualFunc(r.texts, o.texts, func(x, y demoText) bool { return slices.Equal(x.ids, y.ids) })
}
