package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outrider/internal/amount"
	"outrider/internal/evaluate"
	"outrider/internal/lookeval"
	"outrider/router"
	"outrider/trace"
)

type evaluateCmd struct {
	Trace       []string     `arg:"" help:"Routing data: one file, the files of one recording, or their folder."`
	Predictors  []string     `help:"What to evaluate: ${predictors}; oracle (knows the future: a bound); learned (needs --learned). Default: ${default}." default:"online,transition,matrix,recency,frequency" placeholder:"NAME"`
	Learned     string       `help:"A network that outrider train wrote: evaluated as learned." placeholder:"FILE"`
	State       string       `help:"A saved forecast, as outrider run --forecast writes it: evaluated as another row, with what it has learned." placeholder:"FILE"`
	Cache       cacheSize    `help:"The cache whose misses are counted: a share of all experts (25%) or a number of experts (192). Default: ${default}." default:"25%" placeholder:"SIZE"`
	Ahead       []distance   `help:"Also the recall of forecasts made so many layers ahead; token: made when the pass begins, before its first layer." placeholder:"N"`
	TokenIDs    string       `help:"Whether predictors are told the token ids that the trace holds; both: a row with and a row without (${default})." enum:"yes,no,both" default:"yes" name:"token-ids" placeholder:"yes|no|both"`
	Hidden      string       `help:"Hidden states that the routers saw, as float16 [token][layer][width]: with --gates, also what a look-ahead adds to the first of the predictors." placeholder:"FILE"`
	Gates       string       `help:"The routers' matrices, as float32 [layer][expert][width]." placeholder:"FILE"`
	Warm        amount.Share `help:"The first share of the trace is learned from, but not counted." placeholder:"SHARE"`
	MaxTokens   int          `help:"Count this many tokens only; 0 means all." default:"0" placeholder:"N"`
	PerLayer    bool         `help:"Also recall and misses covered of each layer."`
	Calibration bool         `help:"Also how often scores came true, by score."`
	Plot        string       `help:"Also draw that, and recall by layer: .svg or .png." placeholder:"FILE"`
	recording
}

func (evaluateCmd) Help() string {
	return "The trace is replayed token by token; predictors learn as they go, from nothing unless --warm is given. Of each layer's forecast, made right after the layer before:\n\n" +
		"recall@k, @1.5k, @2k: the share of the experts used that were among the k, 1.5 k, 2 k scored highest (k: experts a token), over all layers but the first\n\n" +
		"precision, guesses: of the experts scored 0.5 or more, the share used, and how many they are a layer\n\n" +
		"covered: a cache that keeps by the forecast and reads on demand only misses some experts; the share of these that were among the k not in memory that were scored highest\n\n" +
		"complete: the share of layer executions whose experts all were in memory or among those k\n\n" +
		"hits: the share of experts that were in that cache\n\n" +
		"log loss: mean over experts, in nats; cal. error: by how much scores differ from the share that came true, over ten bins of scores\n\n" +
		"score, learn: what forecasting the next layer and learning from it take, in µs a layer by the clock. They are noisy where the machine does anything else; " +
		"for their sake predictors run one after the other\n\n" +
		"With --hidden and --gates there is another table: the routers of the next one to three layers, applied to the state that a layer's router saw of a token (lookahead), " +
		"the predictor, and the two together as the runtime joins them, with token ids and without. " +
		"A row is of all layers that have so many before them\n\n" +
		"docs/forecast.md has them all." + recordingHelp + statusHelp
}

// evaluation is what --json prints.
type evaluation struct {
	Trace        simulatedTrace  `json:"trace"` // its tokens are those counted
	Rows         []*evaluate.Row `json:"rows"`
	WarmTokens   int             `json:"warm_tokens"`
	CacheExperts int             `json:"cache_experts"`
	CacheShare   float64         `json:"cache_share"`

	Lookahead *lookeval.Report `json:"lookahead,omitempty"`
}

// distance is how many layers ahead: "2", or "token".
type distance int

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (d *distance) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if s == "token" {
		*d = router.BeforePass
		return nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return fmt.Errorf(`%q is no distance: give a number of layers such as 2, or token`, s)
	}
	*d = distance(n)
	return nil
}

// Run replays a trace through each predictor.
func (c *evaluateCmd) Run(ctx context.Context, a *app) error {
	if err := c.check(); err != nil {
		return err
	}
	limit := c.MaxTokens
	if c.Warm > 0 || c.Hidden != "" {
		limit = 0 // the share is of all, and so are the hidden states
	}
	t, err := c.tokens(ctx, a, limit, c.Trace...)
	if err != nil {
		return err
	}
	o, err := c.options(t)
	if err != nil {
		return err
	}
	entries, err := c.entries(t)
	if err != nil {
		return err
	}
	states, err := c.lookInput(t)
	if err != nil {
		return err
	}
	e := &evaluation{Trace: describeTrace(c.Trace, t), WarmTokens: o.Cache.Warm}
	e.Trace.Tokens = replayedTokens(t, o) - o.Cache.Warm
	if e.CacheExperts, err = o.Cache.Capacity(t.Header.Shape); err != nil {
		return usagef("--cache: %s", message(ctx, err))
	}
	e.CacheShare = float64(e.CacheExperts) / float64(t.Header.Shape.Count())
	if e.Rows, err = evaluateAll(ctx, a, t, entries, o); err != nil {
		return err
	}
	if e.Lookahead, err = lookAhead(ctx, a, states, entries[0], o.Cache); err != nil {
		return err
	}
	if c.Plot != "" {
		if err := plotEvaluation(c.Plot, e); err != nil {
			return err
		}
	}
	return a.print(e, c.text(e))
}

// check finds what is wrong before the trace is read.
func (c *evaluateCmd) check() error {
	switch {
	case c.MaxTokens < 0:
		return usagef("--max-tokens is %d, want 0 (all) or more", c.MaxTokens)
	case c.Warm == 1:
		return usagef("--warm is the whole trace, want less: nothing would be left to count")
	case (c.Hidden == "") != (c.Gates == ""):
		return usagef("--hidden and --gates belong together: give both or none")
	case c.Cache.bytes > 0:
		return usagef("--cache is in bytes, want a share of all experts such as 25%%, or a number of experts such as 192")
	}
	known := append(router.Names(), "oracle", learnedName)
	for i, name := range c.Predictors {
		switch {
		case !slices.Contains(known, name):
			return usagef("--predictors: unknown predictor %q: choose from %s", name, strings.Join(known, ", "))
		case slices.Contains(c.Predictors[:i], name):
			return usagef("--predictors names %s twice", name)
		case name == learnedName && c.Learned == "":
			return usagef("--predictors: learned needs --learned FILE, a network that outrider train wrote")
		}
	}
	return checkPlot(c.Plot)
}

// options are those that need to know the trace.
func (c *evaluateCmd) options(t *trace.Trace) (evaluate.Options, error) {
	o := evaluate.Options{Cache: evaluate.CacheOptions{
		Experts: c.Cache.experts, Share: c.Cache.share,
		Warm: int(float64(c.Warm) * float64(t.Len())), MaxTokens: c.MaxTokens,
	}}
	for _, d := range c.Ahead {
		if layers := t.Header.Shape.Layers; int(d) >= layers {
			return o, usagef("--ahead is %d in a model of %d MoE layers, want less", d, layers)
		}
		o.Ahead = append(o.Ahead, int(d))
	}
	if c.TokenIDs == "both" && !t.Header.Tokens {
		return o, inputf("the trace %s tells no token ids; leave --token-ids out", strings.Join(c.Trace, ", "))
	}
	return o, nil
}

// replayedTokens are those to warm up and those counted.
func replayedTokens(t *trace.Trace, o evaluate.Options) int {
	if n := o.Cache.MaxTokens; n > 0 {
		return min(t.Len(), o.Cache.Warm+n)
	}
	return t.Len()
}

// evaluateAll runs the predictors one after the other, so that none disturbs the
// times of another.
func evaluateAll(ctx context.Context, a *app, t *trace.Trace, entries []evaluate.Entry, o evaluate.Options) ([]*evaluate.Row, error) {
	bar := a.progress("evaluating", "tokens")
	defer bar.finish()
	each := int64(2 * replayedTokens(t, o))
	o.Now = a.now
	var rows []*evaluate.Row
	for i, e := range entries {
		o.Progress = func(tokens int) { bar.set(int64(i)*each+int64(tokens), int64(len(entries))*each) }
		row, err := evaluate.Run(ctx, t, e, o)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}
