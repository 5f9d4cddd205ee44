package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"outrider/internal/amount"
	"outrider/internal/costs"
	"outrider/internal/refmodel"
	"outrider/internal/tables"
	"outrider/layout"
	"outrider/runtime"
	"outrider/trace"
)

type runCmd struct {
	Model       string        `arg:"" name:"model-or-store" help:"A store's folder, or a GGUF checkpoint (file, any shard or folder), whose experts are then read in place."`
	Prompt      string        `required:"" help:"The text to go on from." placeholder:"TEXT"`
	Tokens      int           `short:"n" help:"How many tokens to generate (${default})." default:"64" placeholder:"N"`
	Budget      amount.Amount `help:"Memory for experts: a share of what all of them take, or bytes (${default})." default:"25%" placeholder:"25%|512MiB"`
	Policy      string        `help:"outrider: forecast decides what is kept and read ahead; keep: what is kept only; lru: neither." enum:"outrider,keep,lru" default:"outrider"`
	Dense       string        `name:"model" help:"The GGUF file that holds the dense weights of a store; by default the one it was built from." placeholder:"GGUF"`
	Temperature float64       `help:"Sample at this temperature; 0 takes the likeliest token (${default})." default:"0" placeholder:"T"`
	TopP        float64       `help:"Sample from the likeliest tokens that reach this sum of probabilities (${default})." default:"1" placeholder:"P"`
	Seed        uint64        `help:"Makes sampling repeatable (${default})." default:"1" placeholder:"N"`
	Forecast    string        `help:"Go on from the forecast saved in this file, if it is there, and save there in the end what was learned, also when interrupted." placeholder:"FILE"`
	Lookahead   bool          `help:"While generating, apply the next layers' routers to what each router sees: better forecasts (on)." negatable:"" default:"true"`
	TraceOut    string        `help:"Record the routing in this new file: binary, or JSON lines if it ends in .jsonl, either packed if it ends in .gz or .zst." placeholder:"FILE"`
	readFlags
}

func (runCmd) Help() string {
	return "The runner is a small reference (Qwen3-MoE, GGUF), not a fast engine. Streams the text, then prints what it cost: " +
		"exposed stall is the time layers waited for weights. A speculative read is useful (used in time), late, wasted " +
		"(dropped unused), and may have displaced an expert that was needed again." + statusHelp
}

// runSummary is what --json prints.
type runSummary struct {
	Model        string        `json:"model"`
	Policy       string        `json:"policy"`
	BudgetBytes  int64         `json:"budget_bytes"`
	BudgetShare  float64       `json:"budget_share"`
	PromptTokens int           `json:"prompt_tokens"`
	Text         string        `json:"text"`
	Tokens       []int32       `json:"token_ids"`
	Stop         string        `json:"stop"`
	Direct       bool          `json:"direct"`
	Fallback     string        `json:"fallback,omitempty"`
	Engine       string        `json:"engine"` // that reads
	Prompt       costs.Figures `json:"prompt"`
	Decode       costs.Figures `json:"decode"`

	Forecast  *forecastSummary `json:"forecast,omitempty"`
	Lookahead *lookedAhead     `json:"lookahead,omitempty"` // nil: no layer was looked ahead from
}

// lookedAhead counts the layers of tokens that were looked ahead from.
type lookedAhead struct {
	Told int64 `json:"told"`
	Lost int64 `json:"lost"` // of more, that the forecaster was too busy for
}

// Run generates text.
func (c *runCmd) Run(ctx context.Context, a *app) (err error) {
	sampler, err := c.sampler()
	if err != nil {
		return err
	}
	fsys, files, err := c.files()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	m, err := openModel(fsys, c.Model, c.mode())
	if err != nil {
		return err
	}
	p, err := c.prepare(m)
	if err != nil {
		return errors.Join(err, m.Source.Close())
	}
	rt, err := runtime.New(m.Source, p.options)
	if err != nil {
		return err
	}
	out, err := c.generate(ctx, a, p.dense, request{
		runtime: rt, prompt: p.prompt, tokens: c.Tokens, sampler: sampler, onText: c.reader(a),
	})
	stats := rt.Stats()
	err = errors.Join(err, rt.Close())
	if stats.Tokens > 0 { // also what was learned before a failure is worth keeping
		err = errors.Join(err, p.forecast.save(ctx, a, rt.Predictor()))
	}
	if err != nil {
		return err
	}
	s := c.summarise(m.Name, out, stats, m.slotBytes())
	s.Forecast = p.forecast.summary
	return a.print(s, s.writeTo)
}

// prepared is what a run needs beside the model's experts.
type prepared struct {
	dense    *refmodel.Model
	prompt   []int32
	forecast *forecastFile
	options  runtime.Options
}

func (c *runCmd) prepare(m *model) (p prepared, err error) {
	if p.dense, err = c.loadDense(layout.OS(), m); err != nil {
		return p, err
	}
	p.prompt = p.dense.Tokenizer.Encode(c.Prompt)
	if limit := p.dense.Config.Context; len(p.prompt) > limit {
		return p, inputf("prompt too long: it has %d tokens, the model's context is %d: shorten it", len(p.prompt), limit)
	}
	if p.forecast, err = openForecast(c.Forecast, m.Source.Shape()); err != nil {
		return p, err
	}
	if p.options, err = c.options(m.slotBytes()); err != nil {
		return p, err
	}
	p.options.Predictor = p.forecast.predictor
	return p, nil
}

// summarise gathers the figures; total is what all experts take.
func (c *runCmd) summarise(model string, out generation, stats runtime.Stats, total int64) *runSummary {
	s := &runSummary{
		Model: model, Policy: c.Policy, BudgetBytes: stats.Memory.Budget, BudgetShare: float64(stats.Memory.Budget) / float64(total),
		PromptTokens: int(out.prompt.Tokens), Text: out.Text, Tokens: out.Tokens, Stop: out.Stop.String(),
		Prompt: out.prompt.Figures(), Decode: out.decode.Figures(),
	}
	s.Direct, s.Fallback = lanesRead(stats)
	s.Engine = enginesText(enginesOf(stats))
	if h := stats.Hints; h.Told+h.Lost > 0 {
		s.Lookahead = &lookedAhead{Told: h.Told, Lost: h.Lost}
	}
	return s
}

// reader streams the text, prompt first, unless it goes into a JSON object.
func (c *runCmd) reader(a *app) func(string) error {
	if a.json {
		return nil
	}
	begun := false
	return func(text string) error {
		if !begun {
			begun, text = true, c.Prompt+text
		}
		return a.write(text)
	}
}

func (c *runCmd) sampler() (refmodel.Sampler, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	switch {
	case c.Tokens < 1:
		return nil, usagef("-n is %d, want 1 token or more", c.Tokens)
	case c.Forecast != "" && c.Policy == "lru":
		return nil, usagef("--forecast has no meaning with --policy lru, which forecasts nothing: leave one of them out")
	case c.Temperature == 0 && c.TopP == 1:
		return refmodel.Greedy{}, nil
	case c.TopP == 0:
		return nil, usagef("--top-p is 0, want more than 0 and at most 1")
	case c.Temperature == 0:
		return nil, usagef("--top-p has no meaning at temperature 0: give --temperature too")
	}
	s, err := refmodel.NewNucleus(refmodel.NucleusOptions{Temperature: c.Temperature, TopP: c.TopP, Seed: c.Seed})
	if err != nil {
		return nil, usageError{message(context.Background(), err)}
	}
	return s, nil
}

func (c *runCmd) loadDense(fsys layout.FS, m *model) (*refmodel.Model, error) {
	path, err := m.densePath(fsys, c.Dense)
	if err != nil {
		return nil, err
	}
	return refmodel.Load(fsys, path)
}

func (c *runCmd) options(total int64) (runtime.Options, error) {
	o := runtime.Options{BudgetBytes: c.Budget.Of(total)}
	switch c.Policy {
	case "keep":
		o.NoSpeculation = true
	case "lru":
		o.Keep = runtime.KeepLRU
	}
	err := c.apply(&o)
	return o, err
}

// generate runs the model, and records its routing if asked to.
func (c *runCmd) generate(ctx context.Context, a *app, dense *refmodel.Model, in request) (out generation, err error) {
	options := refmodel.Options{Lookahead: c.Lookahead}
	if c.TraceOut != "" {
		header := in.runtime.TraceHeader()
		header.Model = dense.Name
		record, err := trace.Create(c.TraceOut, header)
		if errors.Is(err, fs.ErrExist) {
			return out, fmt.Errorf("--trace-out: %w: name another file, or remove it first", err)
		}
		if err != nil {
			return out, fmt.Errorf("--trace-out: %w", err)
		}
		// Also what was recorded before a failure is a whole trace.
		defer func() { err = errors.Join(err, record.Close()) }()
		options.OnSession = func(s *runtime.Session) error { s.Record(record); return nil }
	}
	g, err := refmodel.New(dense, in.runtime, options)
	if err != nil {
		return out, err
	}
	out, err = generate(ctx, a, g, in)
	err = errors.Join(err, g.Close())
	if len(out.Tokens) > 0 {
		a.say("")
	}
	return out, err
}

func (s *runSummary) writeTo(w io.Writer) {
	var f tables.Fields
	f.Add("model", "%s", s.Model)
	f.Add("budget", "%s, %.1f %% of all experts, policy %s", sizeText(s.BudgetBytes), 100*s.BudgetShare, s.Policy)
	reads := s.Engine
	if s.Fallback != "" {
		reads += ": " + s.Fallback
	}
	f.Add("reads", "%s", reads)
	if s.Forecast != nil {
		f.Add("forecast", "%s", s.Forecast)
	}
	if l := s.Lookahead; l != nil {
		f.Add("look-ahead", "from %d layers of tokens, %d more lost", l.Told, l.Lost)
	}
	f.Add("ended", "%s", map[string]string{"length": "as many tokens as asked for", "end": "the model ended the text", "context": "the model's context is full"}[s.Stop])
	fmt.Fprintln(w)
	f.Print(w)
	fmt.Fprintln(w)
	g := tables.NewGrid(costHeader("phase")...)
	g.Add(costCells("prompt", s.Prompt)...)
	g.Add(costCells("decode", s.Decode)...)
	g.Print(w)
}

func costHeader(first string) []string {
	return []string{first, "tokens", "tokens/s", "stall µs/token", "hits", "MB/token", "useful", "late", "wasted", "displaced"}
}

func costCells(first string, f costs.Figures) []string {
	return []string{first, fmt.Sprint(f.Tokens), fmt.Sprintf("%.0f", f.TokensPerSecond), fmt.Sprintf("%.0f", f.StallPerToken),
		fmt.Sprintf("%.1f %%", 100*f.Hits), fmt.Sprintf("%.3f", f.BytesPerToken/1e6),
		fmt.Sprint(f.Useful), fmt.Sprint(f.Late), fmt.Sprint(f.Wasted), fmt.Sprint(f.Displaced)}
}
