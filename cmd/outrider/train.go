package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dustin/go-humanize"

	"outrider/internal/amount"
	"outrider/internal/tables"
	"outrider/router"
	"outrider/router/learned/train"
	"outrider/trace"
)

type trainCmd struct {
	Trace     []string      `arg:"" help:"Routing data of one model: each argument is a file, or the folder of one recording."`
	Out       string        `required:"" short:"o" help:"The file to write, which must not exist." placeholder:"FILE"`
	Force     bool          `help:"Write it even if it exists."`
	Epochs    int           `help:"The most times that all examples are learned from (${default})." default:"30" placeholder:"N"`
	Patience  int           `help:"Stop after so many epochs without a better held-out loss (${default})." default:"3" placeholder:"N"`
	HoldOut   amount.Share  `help:"Share of the sequences that is not trained on but decides when to stop (${default})." default:"20%" placeholder:"SHARE"`
	Seed      uint64        `help:"The same seed and traces give the same network (${default})." default:"0" placeholder:"N"`
	Memory    amount.Amount `help:"Memory for examples; of more tokens than fit a random part is taken (${default})." default:"256MiB" placeholder:"BYTES"`
	MaxTokens int           `help:"Use this many tokens of each trace only; 0 means all." default:"0" placeholder:"N"`
	recording
}

func (trainCmd) Help() string {
	return "A small network is fitted to the features of the online forecast and to which experts were chosen before; it then forecasts on top of that, " +
		"which goes on learning: outrider evaluate --learned FILE compares the two, and runtime.Options.Predictor takes it (package router/learned).\n\n" +
		"Each token is a pass of its own. Held-out sequences are never trained on; of a single sequence the end is held out. They choose the epoch that is kept, " +
		"so for an honest comparison evaluate on a trace that was not given here. Where no epoch beats the online forecast, the report says so." +
		recordingHelp + statusHelp
}

// training is what --json prints.
type training struct {
	Out    string           `json:"out"`
	Bytes  int64            `json:"bytes"`
	Traces []simulatedTrace `json:"traces"`
	Report train.Report     `json:"report"`
}

// Run trains a forecast.
func (c *trainCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	t := &training{Out: c.Out}
	var traces []*trace.Trace
	for _, path := range c.Trace {
		tr, err := c.tokens(ctx, a, c.MaxTokens, path)
		if err != nil {
			return err
		}
		traces = append(traces, tr)
		t.Traces = append(t.Traces, describeTrace([]string{path}, tr))
	}
	watch := trainingProgress{app: a}
	m, report, err := train.Train(ctx, traces, train.Options{
		Seed: c.Seed, HoldOut: float64(c.HoldOut), Epochs: c.Epochs, Patience: c.Patience, MemoryBytes: c.Memory.Bytes, Progress: watch.tell,
	})
	watch.finish()
	if err != nil {
		return trainError(err)
	}
	t.Report = report
	if t.Bytes, err = writeNetwork(c.Out, m, c.Force); err != nil {
		return err
	}
	return a.print(t, t.writeTo)
}

// check finds what is wrong before a trace is read.
func (c *trainCmd) check() error {
	switch {
	case c.Epochs < 1 || c.Patience < 1:
		return usagef("--epochs is %d and --patience %d, want 1 or more", c.Epochs, c.Patience)
	case c.HoldOut == 1:
		return usagef("--hold-out is all sequences, want less: nothing would be left to train on")
	case c.Memory.Share > 0:
		return usagef("--memory is a share, want bytes such as 256MiB")
	case c.MaxTokens < 0:
		return usagef("--max-tokens is %d, want 0 (all) or more", c.MaxTokens)
	}
	// Training takes minutes: what would stop the result from being written is said now.
	if _, err := os.Stat(filepath.Dir(c.Out)); err != nil {
		return err
	}
	if _, err := os.Lstat(c.Out); err == nil && !c.Force {
		return inputf("%s exists; give another name, or --force to replace it", c.Out)
	}
	return nil
}

// trainError says what an error of package train means to the program.
func trainError(err error) error {
	switch {
	case errors.Is(err, train.ErrOption):
		return usageError{err.Error()}
	case errors.Is(err, train.ErrTooLittle), errors.Is(err, router.ErrShape):
		return inputError{err.Error()}
	}
	return err
}

// trainingProgress shows the replay, and then each epoch by itself.
type trainingProgress struct {
	app   *app
	stage string
	bar   *progress
}

func (p *trainingProgress) tell(now train.Progress) {
	stage, unit := "replaying", "tokens"
	if now.Stage == train.Learning {
		stage, unit = "epoch 1", "examples"
		if e := now.Epoch; e != nil {
			stage = fmt.Sprintf("epoch %d (held-out loss so far %.4f)", e.Epoch+1, e.HeldOutLoss)
		}
	}
	if stage != p.stage {
		p.finish()
		p.stage, p.bar = stage, p.app.progress(stage, unit)
	}
	p.bar.set(now.Done, now.Total)
}

func (p *trainingProgress) finish() {
	if p.bar != nil {
		p.bar.finish()
	}
}

func (t *training) writeTo(w io.Writer) {
	for _, tr := range t.Traces {
		tr.writeTo(w)
	}
	r := &t.Report
	var f tables.Fields
	f.Add("trained on", "%s tokens of %s, %s examples", humanize.Comma(int64(r.TrainTokens)), sequencesText(r.TrainSequences), humanize.Comma(int64(r.TrainExamples)))
	held := sequencesText(r.HeldOutSequences)
	if r.Split == "time" {
		held = "the end of the only sequence"
	}
	f.Add("held out", "%s tokens of %s", humanize.Comma(int64(r.HeldOutTokens)), held)
	f.Add("network", "%s parameters", humanize.Comma(int64(r.Parameters)))
	f.Add("epochs", "%d, the best %d", len(r.Epochs), r.Best)
	f.Add("held-out loss", "%.4f, of the online forecast %.4f", r.Loss(), r.Start)
	f.Add("written", "%s, %s", t.Out, bytesText(t.Bytes))
	f.Print(w)
	fmt.Fprintln(w)
	g := tables.NewGrid("forecast", "online", "examples", "recall@k online", "learned", "log loss online", "learned")
	for _, c := range r.Comparisons {
		age := "new"
		if c.Warm {
			age = "trained"
		}
		g.Add(c.Horizon, age, fmt.Sprint(c.Examples), fmt.Sprintf("%.3f", c.OnlineRecall), fmt.Sprintf("%.3f", c.LearnedRecall),
			fmt.Sprintf("%.4f", c.OnlineLogLoss), fmt.Sprintf("%.4f", c.LearnedLogLoss))
	}
	g.Print(w)
	if r.Best == 0 {
		fmt.Fprintln(w, "\nNo epoch beat the online forecast: the network adds nothing to it.")
	}
}

func sequencesText(n int) string {
	if n == 1 {
		return "1 sequence"
	}
	return humanize.Comma(int64(n)) + " sequences"
}
