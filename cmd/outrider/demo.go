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

	"outrider/internal/amount"
	"outrider/internal/costs"
	"outrider/internal/refmodel"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/runtime"
	"outrider/testdata/tinymoe"
)

type demoCmd struct {
	Budget amount.Amount `help:"Memory for experts of the two arms that stream: a share of what all experts take, or bytes (${default})." default:"25%" placeholder:"25%|4MiB"`
	Dir    string        `help:"Where to make the temporary folder; by default the system's place for such." placeholder:"FOLDER"`

	Lookahead bool `help:"In the arm outrider, apply the next layers' routers to what each router sees: better forecasts (on)." negatable:"" default:"true"`

	// For tests, which have less time.
	Rounds int `hidden:"" default:"3"`   // that count, after the first
	Tokens int `hidden:"" default:"160"` // of each text
}

func (demoCmd) Help() string {
	return "Lays out the small model inside this program and generates the same text three times: resident (all experts in " +
		"memory), demand (least recently used kept, read when the router asks), and outrider (kept and read ahead by forecast, in which the model's own routers look a layer ahead unless --no-lookahead is given). " +
		"All begin empty and take turns, text by text. The first round of texts is warm-up: the forecast knows nothing yet; its figures stand apart. " +
		"All figures are of decoding only, speed and stall medians over the texts. Exposed stall is the time layers waited for weights. " +
		"The temporary folder (about 32 MB) is removed at the end." + statusHelp
}

const (
	demoLeast = 2 // rounds with the warm-up, however slow the machine is
	// demoPatience is when a round more would take too long.
	demoPatience = 45 * time.Second
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
	name      string
	options   runtime.Options
	lookahead bool
	preload   bool
	runtime   *runtime.Runtime
	generator *refmodel.Generator
	rounds    []armRound // the first is warm-up
}

type armRound struct {
	decode []costs.Cost // of each text
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
	Rounds    int       `json:"rounds"` // that count
	Arms      []demoArm `json:"arms"`
	// StallRatio is the outrider arm's stall over the demand arm's, HitsGain
	// its hits less the demand arm's in points of a hundred. The warm-up's are
	// those of the first round, which the others leave out.
	StallRatio       float64    `json:"stall_ratio"`
	HitsGain         float64    `json:"hits_gain_points"`
	WarmUpStallRatio float64    `json:"warm_up_stall_ratio"`
	WarmUpHitsGain   float64    `json:"warm_up_hits_gain_points"`
	Text             []demoText `json:"text"` // of the first round
}

type demoArm struct {
	Name        string `json:"name"`
	BudgetBytes int64  `json:"budget_bytes"`
	costs.Figures
	WarmUp   costs.Figures `json:"warm_up"`
	Direct   bool          `json:"direct"`
	Fallback string        `json:"fallback,omitempty"`
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
	defer func() { err = errors.Join(err, closeArms(arms)) }()
	if err := openArms(ctx, store, dense, arms); err != nil {
		return err
	}
	if err := c.playRounds(ctx, a, dense, arms); err != nil {
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
	budget := c.Budget.Of(total)
	return []*arm{
		{name: "resident", options: runtime.Options{BudgetBytes: total, FixedBudget: true}, preload: true},
		{name: "demand", options: runtime.Options{BudgetBytes: budget, FixedBudget: true, Keep: runtime.KeepLRU}},
		{name: "outrider", options: runtime.Options{BudgetBytes: budget, FixedBudget: true}, lookahead: c.Lookahead},
	}, m.Source.Close()
}

// openArms starts each arm's runtime; closeArms ends those that were started.
func openArms(ctx context.Context, store string, dense *refmodel.Model, arms []*arm) (err error) {
	for _, arm := range arms {
		if arm.runtime, err = runtime.Open(ctx, store, arm.options); err != nil {
			return fmt.Errorf("demo: arm %s: %w", arm.name, err)
		}
		if arm.preload {
			if err := arm.runtime.Preload(ctx); err != nil {
				return fmt.Errorf("demo: arm %s: %w", arm.name, err)
			}
		}
		if arm.generator, err = refmodel.New(dense, arm.runtime, refmodel.Options{IgnoreEnd: true, Lookahead: arm.lookahead}); err != nil {
			return fmt.Errorf("demo: arm %s: %w", arm.name, err)
		}
	}
	return nil
}

func closeArms(arms []*arm) (err error) {
	for _, arm := range arms {
		if arm.generator != nil {
			err = errors.Join(err, arm.generator.Close())
		}
		if arm.runtime != nil {
			err = errors.Join(err, arm.runtime.Close())
		}
	}
	return err
}

// playRounds lets the arms take turns at each text, another one first each
// time, so that what else the machine does meets all of them.
func (c *demoCmd) playRounds(ctx context.Context, a *app, dense *refmodel.Model, arms []*arm) error {
	bar := a.progress("generating", "texts")
	defer bar.finish()
	began := a.now()
	rounds := c.Rounds + 1
	total := int64(rounds * len(demoPrompts) * len(arms))
	var done int64
	for round := range rounds {
		if spent := a.now().Sub(began); round >= demoLeast && spent+spent/time.Duration(round) > demoPatience {
			break
		}
		for _, arm := range arms {
			arm.rounds = append(arm.rounds, armRound{})
		}
		for text := range demoPrompts {
			for i := range arms {
				arm := arms[(text+i)%len(arms)]
				if err := arm.play(ctx, a, dense, part{round: round, text: text, tokens: c.Tokens}); err != nil {
					return fmt.Errorf("demo: arm %s: %w", arm.name, err)
				}
				done++
				bar.set(done, total)
			}
		}
	}
	return nil
}

// part is one text of a round.
type part struct{ round, text, tokens int }

// play generates one text. Greedy text of so small a model falls into loops,
// which flatter every cache, so it is sampled, in each round with another seed.
func (arm *arm) play(ctx context.Context, a *app, dense *refmodel.Model, p part) error {
	sampler, err := refmodel.NewNucleus(refmodel.NucleusOptions{Temperature: 0.8, TopP: 0.95, Seed: uint64(p.round + 1)})
	if err != nil {
		return err
	}
	prompt := demoPrompts[p.text]
	text, err := generate(ctx, a, arm.generator, request{
		runtime: arm.runtime, prompt: dense.Tokenizer.Encode(prompt.text), tokens: p.tokens, sampler: sampler,
	})
	if err != nil {
		return err
	}
	round := &arm.rounds[p.round]
	round.decode = append(round.decode, text.decode)
	round.texts = append(round.texts, demoText{Domain: prompt.domain, Prompt: prompt.text, Text: text.Text, ids: text.Tokens})
	return nil
}

// equal reports whether two rounds wrote the same tokens.
func (r armRound) equal(o armRound) bool {
	return slices.EqualFunc(r.texts, o.texts, func(x, y demoText) bool { return slices.Equal(x.ids, y.ids) })
}
