package evaluate

import (
	"context"
	"fmt"
	"time"

	"outrider/router"
	"outrider/trace"
)

// Entry is one predictor to be evaluated.
type Entry struct {
	Name string
	// New makes the predictor anew: once for its forecasts, once for the cache.
	New func(t *trace.Trace) (router.Predictor, error)
	// HideTokens withholds the token ids that the trace tells.
	HideTokens bool
}

// Options of an evaluation.
type Options struct {
	Cache CacheOptions // and how many tokens
	Ahead []int        // see router.EvalOptions
	Now   func() time.Time
	// Progress is told now and then how many tokens were replayed, of two replays
	// in all; nil: nobody.
	Progress func(tokens int)
}

// Row is what is said of one predictor.
type Row struct {
	Predictor string `json:"predictor"`
	Figures
	ScoreMicros float64 `json:"score_us"` // mean of a layer
	LearnMicros float64 `json:"learn_us"` // mean of a layer
	Layers      []Layer `json:"layers"`

	TokenIDs bool `json:"token_ids"` // the predictor was told token ids
	More
	Calibration router.Calibration `json:"calibration"`
	ColdStart   []router.ColdStart `json:"cold_start"`
	Ahead       []Ahead            `json:"ahead,omitempty"`
	Seconds     float64            `json:"seconds"` // that the predictor took in all
}

// Layer is what is said of one layer.
type Layer struct {
	Layer int `json:"layer"`
	Figures
	More
}

// Figures are of a layer, or of all: recall, precision and log loss then over the
// layers of router.Evaluation.Overall, what the cache saw over all of them.
type Figures struct {
	RecallAtK         float64  `json:"recall_at_k"`
	RecallAt1p5K      float64  `json:"recall_at_1_5k"`
	RecallAt2K        float64  `json:"recall_at_2k"`
	Precision         *float64 `json:"precision"`     // nil: there were no guesses
	MissCoverage      *float64 `json:"miss_coverage"` // nil: there were no misses
	LayerCompleteRate float64  `json:"layer_complete_rate"`
	LogLoss           float64  `json:"log_loss"`
}

// More are further figures of a layer, or of all.
type More struct {
	Guesses float64 `json:"guesses"` // experts scored 0.5 or more, mean over executions
	Hits    float64 `json:"hits"`    // of the cache
}

// Ahead is router.AheadRecall, with "token" for before the pass.
type Ahead struct {
	Layers    Distance `json:"layers"`
	RecallAtK float64  `json:"recall_at_k"`
}

// Run evaluates one predictor: a replay for its forecasts and its cost, and one
// for the cache. It fails as router.Evaluate and Cache do.
func Run(ctx context.Context, t *trace.Trace, e Entry, o Options) (*Row, error) {
	if e.HideTokens {
		t = t.WithoutTokens()
	}
	p, err := e.New(t)
	if err != nil {
		return nil, err
	}
	seen, err := router.Evaluate(ctx, p, t, router.EvalOptions{
		MaxTokens: o.Cache.MaxTokens, Warm: o.Cache.Warm, Ahead: o.Ahead, Progress: o.Progress, Now: o.Now,
	})
	if err != nil {
		return nil, err
	}
	if p, err = e.New(t); err != nil {
		return nil, err
	}
	cache := o.Cache
	if o.Progress != nil {
		first := o.Cache.Warm + seen.Tokens
		cache.Progress = func(tokens int) { o.Progress(first + tokens) }
	}
	counts, err := Cache(ctx, p, t, cache)
	if err != nil {
		return nil, err
	}
	return newRow(e, t, seen, counts), nil
}

func newRow(e Entry, t *trace.Trace, seen *router.Evaluation, counts []Counts) *Row {
	r := &Row{Predictor: e.Name, TokenIDs: t.Header.Tokens, Calibration: seen.Calibration, ColdStart: seen.ColdStart}
	var all Counts
	for l, c := range counts {
		all.add(c)
		layer := Layer{Layer: l}
		layer.Figures, layer.More = figures(seen.Layers[l], c)
		r.Layers = append(r.Layers, layer)
	}
	r.Figures, r.More = figures(seen.Overall, all)
	r.ScoreMicros, r.LearnMicros = micros(seen.Cost.Score), micros(seen.Cost.Learn)
	r.Seconds = seen.Cost.Total.Seconds()
	for _, a := range seen.Ahead {
		r.Ahead = append(r.Ahead, Ahead{Layers: Distance(a.Layers), RecallAtK: a.AtK})
	}
	if r.ColdStart == nil {
		r.ColdStart = []router.ColdStart{}
	}
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func figures(r router.Recall, c Counts) (Figures, More) {
	f := Figures{
		RecallAtK: r.AtK, RecallAt1p5K: r.At1p5K, RecallAt2K: r.At2K, LogLoss: r.LogLoss,
		LayerCompleteRate: c.CompleteRate(),
	}
	if p, ok := r.Precision(); ok {
		f.Precision = &p
	}
	if m, ok := c.MissCoverage(); ok {
		f.MissCoverage = &m
	}
	return f, More{Guesses: r.Guesses, Hits: c.Hits()}
}

// Distance is how many layers ahead a forecast is made, or router.BeforePass.
type Distance int

// String is "2", or "token" for before the pass.
func (d Distance) String() string {
	if d == router.BeforePass {
		return "token"
	}
	return fmt.Sprint(int(d))
}

// MarshalJSON writes 2, or "token".
func (d Distance) MarshalJSON() ([]byte, error) {
	if d == router.BeforePass {
		return []byte(`"token"`), nil
	}
	return []byte(d.String()), nil
}
