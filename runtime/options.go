package runtime

import (
	"fmt"
	"log/slog"

	"outrider/layout"
	"outrider/router"
)

// Keep says which resident expert goes first when room is needed.
type Keep uint8

const (
	// KeepForecast drops the expert whose next use is expected last.
	KeepForecast Keep = iota
	// KeepLRU drops the expert that was used longest ago: the baseline that most
	// engines ship. Nothing is forecast, unless a Predictor is given: that then
	// reads ahead.
	KeepLRU
)

// maxHorizon is the longest Options.Horizon.
const maxHorizon = 64

// Options configure a runtime. The zero value works.
type Options struct {
	// BudgetBytes is the hard limit for all expert memory: resident, leased and
	// being read. 0 takes what the machine and its cgroups leave (see
	// experts.AutoBudget); Stats and the log say what was chosen.
	BudgetBytes int64
	// Keep is the eviction rule.
	Keep Keep
	// Order, if not nil, is the eviction rule instead of Keep: for comparisons
	// such as router.NewLFU. It belongs to the runtime then. As with KeepLRU, nothing
	// is forecast unless a Predictor is given.
	Order router.Order
	// Predictor forecasts the router; nil takes router.NewOnline where Keep is
	// KeepForecast. It may be shared by several runtimes over the same model.
	Predictor router.Predictor
	// NoSpeculation reads only what a router has chosen. With KeepForecast the
	// forecast still decides what is kept.
	NoSpeculation bool
	// Horizon is how many layers ahead speculative reads reach. 0 chooses, all
	// the time anew: as many as one read takes by measurement, from 1 to 8.
	// Nearer forecasts are better ones, so a horizon longer than that costs more
	// than it gains.
	Horizon int
	// LookaheadLayers is how many layers ahead Session.Lookahead hints, at most:
	// never further than speculative reads reach. 0 means 1.
	LookaheadLayers int
	// Workers is how many reads run at once; 0 takes the prefetcher's default.
	Workers int
	// Buffered reads through the page cache instead of around it.
	Buffered bool
	// FS is where files are opened; nil means layout.OS(). A layout.Ring reads
	// with less CPU through io_uring; see there when it pays. The caller closes it
	// after the runtime.
	FS layout.FS
	// Logger gets the effective configuration and background failures; nil is silent.
	Logger *slog.Logger
	// Poison overwrites the memory of experts that are dropped, so that a runner
	// that reads weights after releasing them computes nonsense instead of
	// something plausible. For tests.
	Poison bool
}

// Validate reports the first option that has no meaning.
func (o Options) Validate() error {
	switch {
	case o.BudgetBytes < 0:
		return fmt.Errorf("runtime: budget is %d bytes, want 0 (automatic) or more", o.BudgetBytes)
	case o.Keep > KeepLRU:
		return fmt.Errorf("runtime: unknown eviction rule %d", o.Keep)
	case o.Keep != KeepForecast && o.Order != nil:
		return fmt.Errorf("runtime: two eviction rules were given, Keep and Order: leave one of them out")
	case o.NoSpeculation && o.Predictor != nil && !o.forecastKeeps():
		return fmt.Errorf("runtime: a predictor was given, but it neither ranks what is kept nor may read ahead: leave it out")
	case o.Horizon < 0 || o.Horizon > maxHorizon:
		return fmt.Errorf("runtime: horizon is %d layers, want 0 (automatic) to %d", o.Horizon, maxHorizon)
	case o.LookaheadLayers < 0 || o.LookaheadLayers > maxHorizon:
		return fmt.Errorf("runtime: look-ahead of %d layers, want 0 (one) to %d", o.LookaheadLayers, maxHorizon)
	case o.Workers < 0:
		return fmt.Errorf("runtime: %d workers, want 0 (default) or more", o.Workers)
	}
	return nil
}

// keepText names the eviction rule.
func (o Options) keepText() string {
	switch {
	case o.Order != nil:
		return fmt.Sprintf("%T", o.Order)
	case o.Keep == KeepLRU:
		return "lru"
	}
	return "forecast"
}

// forecastKeeps reports whether the forecast ranks what is kept.
func (o Options) forecastKeeps() bool { return o.Keep == KeepForecast && o.Order == nil }

// forecasts reports whether anything is forecast.
func (o Options) forecasts() bool { return o.forecastKeeps() || o.Predictor != nil }

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = layout.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func (o Options) mode() layout.Mode {
	if o.Buffered {
		return layout.Buffered
	}
	return layout.Direct
}
