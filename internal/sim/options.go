package sim

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
)

// ErrOption: a run or an option that the simulation does not have.
var ErrOption = errors.New("not a valid simulation")

// Options of one simulated run. CacheShare or CacheExperts is needed.
type Options struct {
	CacheShare   float64 // capacity over all experts of the model, over 0 to 1
	CacheExperts int     // capacity in experts; if set, instead of CacheShare
	Ratio        float64 // time to read a layer's top-k experts over its compute time; 0 means 1
	Attention    float64 // share of a layer's compute before its routing is known; 0 means 0.5
	MaxTokens    int     // tokens replayed; 0 means all
	Horizon      int     // layers forecast ahead; 0 means 1, which does best at a ratio of 1
	Margin       float64 // how many times later a victim of a speculative read must be expected; 0 means prefetcher.DefaultMargin
	Governor     prefetcher.GovernorOptions
}

func (o Options) withDefaults() Options {
	if o.Ratio == 0 {
		o.Ratio = 1
	}
	if o.Attention == 0 {
		o.Attention = 0.5
	}
	if o.Horizon == 0 {
		o.Horizon = 1
	}
	if o.Margin == 0 {
		o.Margin = prefetcher.DefaultMargin
	}
	return o
}

// Validate reports the first option that is out of range.
func (o Options) Validate() error {
	d := o.withDefaults()
	switch {
	case d.CacheExperts < 0 || (d.CacheExperts == 0 && !(d.CacheShare > 0 && d.CacheShare <= 1)):
		return fmt.Errorf("sim: %w: cache share is %v, want more than 0 to 1 (or a number of experts)", ErrOption, o.CacheShare)
	case !(d.Ratio > 0 && d.Ratio <= 1e6):
		return fmt.Errorf("sim: %w: ratio is %v, want more than 0 to 1e6", ErrOption, o.Ratio)
	case !(d.Attention > 0 && d.Attention <= 1):
		return fmt.Errorf("sim: %w: attention is %v, want more than 0 to 1", ErrOption, o.Attention)
	case d.Horizon < 0:
		return fmt.Errorf("sim: %w: horizon is %d layers, want 0 or more", ErrOption, o.Horizon)
	case !(d.Margin > 0):
		return fmt.Errorf("sim: %w: margin is %v, want more than 0", ErrOption, o.Margin)
	}
	return nil
}

// capacity is the cache's size in experts.
func (o Options) capacity(shape layout.Shape) (int, error) {
	n := o.CacheExperts
	if n == 0 {
		n = int(math.Round(o.CacheShare * float64(shape.Count())))
	}
	n = min(n, shape.Count())
	if n < shape.TopK {
		return 0, fmt.Errorf("sim: %w: a cache of %d experts cannot hold the %d of one layer; raise the cache share", ErrOption, n, shape.TopK)
	}
	return n, nil
}

// Result is one run's figures.
type Result struct {
	Run        string  `json:"run"`
	CacheShare float64 `json:"cache_share"`
	Ratio      float64 `json:"ratio"`
	// Hits is the share of demanded experts that were in memory when the
	// layer's routing became known.
	Hits                     float64 `json:"hits"`
	DemandReadsPerToken      float64 `json:"demand_reads_per_token"`
	SpeculativeReadsPerToken float64 `json:"speculative_reads_per_token"`
	// Speculative reads that were used in time, that a demand had to wait
	// for, that were dropped unused, and experts thrown out by one and demanded
	// before they were read again. What is unused at the end is none of these.
	Useful    int64 `json:"useful"`
	Late      int64 `json:"late"`
	Wasted    int64 `json:"wasted"`
	Displaced int64 `json:"displaced"`
	// StallOverCompute is the time layers waited for experts over the time
	// they computed.
	StallOverCompute float64 `json:"stall_over_compute"`
	// LayerCompleteRate is the share of layer executions that had all experts
	// in memory when their routing became known.
	LayerCompleteRate float64 `json:"layer_complete_rate"`
	// RecallAtK of the next layer, over all but the first layer; 0 for runs
	// without a forecast.
	RecallAtK float64 `json:"recall_at_k"`
}

// run is what a run's name says.
type run struct {
	name      string
	predictor string // "" for none
	speculate bool
	next      bool // the next layer's choice is known
}

// Runs lists the runs, yardsticks first. "optimum" is Belady's optimum of
// demand caching, and "online+next" knows the next layer's choice: bounds, not
// policies. Any predictor of router.Names, and "oracle", may stand for "online".
func Runs() []string {
	return []string{"lru", "lfu", "frequency", "frequency+spec", "recency", "recency+spec",
		"transition", "transition+spec", "online", "online+spec", "online+next", "optimum"}
}

func parseRun(name string) (run, error) {
	switch name {
	case "lru", "lfu", "optimum":
		return run{name: name}, nil
	}
	base, how, plus := strings.Cut(name, "+")
	r := run{name: name, predictor: base}
	known := base == "oracle"
	for _, n := range router.Names() {
		known = known || n == base
	}
	switch {
	case !known || (plus && how != "spec" && how != "next"):
		return run{}, fmt.Errorf("sim: %w: no run is called %q: choose from %s", ErrOption, name, strings.Join(Runs(), ", "))
	case plus:
		r.speculate, r.next = true, how == "next"
	}
	return r, nil
}
