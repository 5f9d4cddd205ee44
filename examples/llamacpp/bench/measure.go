package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"outrider/internal/pagecache"
	"outrider/layout"
	"outrider/layout/gguf"
)

// bench is a measurement under way.
type bench struct {
	*command
	program *program
	groups  *groups // nil: no limits can be set
	raw     *rawReader
	files   []string // of the model and the store, to be dropped from the page cache
	log     io.Writer
	found   *findings
}

// findings is all that was measured, as --out gets it.
type findings struct {
	Began      time.Time `json:"began"`
	Arguments  []string  `json:"arguments"` // of bench
	About      string    `json:"about"`
	Library    string    `json:"library"`
	CPUs       int       `json:"cpus"`
	Text       string    `json:"text"`
	Rounds     int       `json:"rounds"`
	WarmUp     int       `json:"warm_up"`
	Tokens     int       `json:"tokens"`
	MmapTokens int       `json:"mmap_tokens"`
	Sizes      model     `json:"sizes"`
	NoLimits   string    `json:"no_limits,omitempty"` // why memory limits could not be set
	Runs       []entry   `json:"runs"`
	summary
}

// entry is a step and what came of it.
type entry struct {
	step
	Raw     *rawRate `json:"raw,omitempty"`
	Result  *result  `json:"result,omitempty"`
	Error   string   `json:"error,omitempty"`
	Cached  float64  `json:"cached,omitempty"` // share of the files that could not be dropped from the page cache
	Seconds float64  `json:"seconds"`          // the whole process took
}

// measure measures all, prints the report and writes the file, also with what there is
// when it fails or is interrupted.
func (c *command) measure(ctx context.Context, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "outrider-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{command: c, log: stderr}
	if err := b.prepare(ctx, dir); err != nil {
		return errors.Join(err, b.raw.Close())
	}
	defer func() { err = errors.Join(err, b.raw.Close()) }()
	err = b.steps(ctx, append(c.speedSteps(b.found.Sizes), c.equalSteps(b.found.Sizes)...))
	b.found.summary = summarise(b.found, c.Budgets)
	return errors.Join(err, b.report(stdout))
}

// prepare builds, opens and asks all that must be known before.
func (b *bench) prepare(ctx context.Context, dir string) (err error) {
	if _, err := os.Stat(filepath.Dir(b.Out)); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	p := &program{path: b.Command, lib: b.Lib, model: b.Model, text: b.ForceText, store: b.Store}
	b.program = p
	if p.text == "" {
		p.text = filepath.Join(dir, "passages.txt")
		if err := os.WriteFile(p.text, passages, 0o600); err != nil {
			return err
		}
	}
	if b.raw, err = openRaw(b.Model, b.Store, b.RawTime); err != nil {
		return err
	}
	if err := b.list(); err != nil {
		return err
	}
	if p.path == "" {
		if p.path, err = build(ctx, dir); err != nil {
			return err
		}
	}
	b.found = &findings{Began: time.Now().UTC().Truncate(time.Second), Arguments: b.args, CPUs: runtime.NumCPU(),
		Text: cmp.Or(b.ForceText, "prose, code, documentation, dialogue"), Rounds: b.Rounds, WarmUp: b.WarmUp, Tokens: b.Tokens, MmapTokens: b.MmapTokens}
	if b.groups, err = findGroups("/"); err != nil {
		b.groups, b.found.NoLimits = nil, err.Error()
		fmt.Fprintf(b.log, "no memory limit can be set here, so the mmap arm is left out: %v\n", err)
	}
	return b.survey(ctx)
}

// list names the files.
func (b *bench) list() error {
	file, err := gguf.Open(layout.OS(), b.Model)
	if err != nil {
		return err
	}
	for _, s := range file.Shards() {
		b.files = append(b.files, s.Path)
	}
	if b.Store != "" {
		for _, lane := range b.raw.source.Lanes() {
			b.files = append(b.files, lane.Path)
		}
	}
	return nil
}

// needs is how an error names the least budget.
var needs = regexp.MustCompile(`budget is below the floor.* needs (\d+)`)

// survey asks outrider-llama what the model needs.
func (b *bench) survey(ctx context.Context) error {
	s := step{Purpose: equal, Arm: outrider, Budget: floorName, Tokens: 1, amount: "1B"}
	_, err := b.program.run(ctx, s, nil)
	if err == nil {
		return errors.New("outrider-llama works with a budget of one byte: is it another version?")
	}
	found := needs.FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	s.amount = found[1]
	r, err := b.program.run(ctx, s, nil)
	if err != nil {
		return err
	}
	b.found.Sizes = model{DenseBytes: r.DenseBytes, ExpertBytes: r.ExpertBytes, limited: b.groups != nil}
	b.found.About, b.found.Library = r.About, r.Library
	b.found.Sizes.FloorBytes, err = strconv.ParseInt(found[1], 10, 64)
	return err
}

// steps carries out all steps. One that fails is noted, and the rest goes on.
func (b *bench) steps(ctx context.Context, all []step) error {
	failed := 0
	for i, s := range all {
		began := time.Now()
		e, err := b.step(ctx, s)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed++
			e.Error = err.Error()
		}
		e.Seconds = time.Since(began).Seconds()
		b.found.Runs = append(b.found.Runs, e)
		fmt.Fprintf(b.log, "%d/%d %s\n", i+1, len(all), e.line())
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d runs failed: see the report", failed, len(all))
	}
	return nil
}

func (b *bench) step(ctx context.Context, s step) (e entry, err error) {
	e.step = s
	if s.Arm == "" {
		rate, err := b.raw.measure(ctx)
		e.Raw = &rate
		return e, err
	}
	e.Cached = b.drop()
	var g *group
	if s.Limit > 0 {
		if g, err = b.groups.make(s.Limit); err != nil {
			return e, fmt.Errorf("%s: %w", s, err)
		}
		defer func() { err = errors.Join(err, g.remove()) }()
	}
	e.Result, err = b.program.run(ctx, s, g)
	return e, err
}

// drop empties the page cache of the files, and tells what share stayed; where the
// system does not tell, that is 0.
func (b *bench) drop() float64 {
	var left, all int64
	for _, f := range b.files {
		if pagecache.Drop(f) != nil {
			continue
		}
		if cached, total, err := pagecache.Cached(f); err == nil {
			left, all = left+cached, all+total
		}
	}
	return float64(left) / float64(max(all, 1))
}

// line tells of it while the measurement goes on.
func (e *entry) line() string {
	switch {
	case e.Error != "":
		return e.Error
	case e.Raw != nil:
		return fmt.Sprintf("raw reads: %.0f MB/s with %d at once", e.Raw.BytesPerSecond/megabyte, e.Raw.Depth)
	case e.Purpose == equal:
		return fmt.Sprintf("%s: %d tokens", e.step, len(e.ids()))
	}
	return fmt.Sprintf("%s: %.2f tokens/s, peak %.0f MB", e.step, e.rate(), float64(e.Result.PeakBytes)/megabyte)
}

// rate is tokens per second of what the run is for, 0 if it failed.
func (e *entry) rate() float64 {
	switch {
	case e.Result == nil:
		return 0
	case e.Purpose == prefill:
		return e.Result.Prompt.TokensPerSecond
	}
	return e.Result.Decode.TokensPerSecond
}

// ids are the tokens of the text, nil if the run failed.
func (e *entry) ids() []int32 {
	if e.Result == nil || len(e.Result.Texts) != 1 {
		return nil
	}
	return e.Result.Texts[0].Tokens
}
