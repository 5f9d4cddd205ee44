package runtime

import (
	"fmt"
	"log/slog"
	"time"

	"outrider/experts"
	"outrider/layout"
	"outrider/layout/drive"
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

// Placement says where experts lie in memory.
type Placement uint8

const (
	// PlacementPooled lets all experts share slots: an expert lies where there is
	// room, and the memory of one that is dropped goes straight to the next.
	PlacementPooled Placement = iota
	// PlacementFixed gives each expert one address for the whole run, so that the
	// experts of a layer are a stacked tensor (Runtime.Stack) for kernels that want
	// one. Reading an expert in place of another moves its pages, a system call or
	// two, where records have 512 KiB or more; smaller ones give theirs back and take
	// new ones, which slows their reads. On Linux only.
	PlacementFixed
)

// maxHorizon is the longest Options.Horizon.
const maxHorizon = 64

// Options configure a runtime. The zero value works. An option that cannot have
// its effect is refused, by Validate or when opening.
type Options struct {
	// BudgetBytes is the hard limit for all expert memory: resident, leased and
	// being read. 0 takes what the machine and its cgroups leave (see
	// experts.AutoBudget); Stats and the log say what was chosen. SetBudget changes it.
	BudgetBytes int64
	// FixedBudget keeps the budget where it was set. Without it the runtime watches
	// the system's memory pressure (see experts.Pressure) where that can be seen, on Linux:
	// it shrinks the budget step by step while memory is short, never below
	// one layer of one token, and lets it grow back to what was set.
	FixedBudget bool
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
	// Depth is how many blocks are read at once on each lane, 1 to 1024; 0 takes
	// Drive's, or else the prefetcher's default.
	Depth int
	// Block is how many bytes one read asks for at most, a multiple of 4096; 0 takes
	// Drive's, or else the prefetcher's default.
	Block int64
	// SilentAfter is how long a lane may take for a read before it is given up: the
	// expert is read from its copy, or else is prefetcher.ErrNoAnswer. 0 takes the
	// prefetcher's default, 30 s.
	SilentAfter time.Duration
	// Drive is what was measured of the drives (drive.Probe, "outrider probe"): it
	// sets Depth and Block where these are 0, and what each lane is first thought
	// to give. The profile of a store with several lanes fits that store only;
	// any other is taken for each lane.
	Drive *drive.Profile
	// Projections lets Use.Projections hand out the projections of an expert as they
	// arrive, before the rest of it. It costs a call for each.
	Projections bool
	// Engine is what carries out direct reads; by default io_uring where the kernel
	// allows it, else pread (layout.OpenSystem). Stats and the log say which it is.
	// Only where the runtime opens the files itself: Open, without FS and Buffered.
	Engine layout.EngineKind
	// Buffered reads through the page cache instead of around it.
	Buffered bool
	// FS is where files are opened; nil means the operating system, read by Engine.
	// The caller closes it after the runtime.
	FS layout.FS
	// Placement says where experts lie in memory.
	Placement Placement
	// Stacked makes the memory of PlacementFixed in place of experts.NewFixedMemory, for
	// runners that see to it themselves when weights appear at their address: what is
	// said of Runtime.Stack is what that memory says then. It is called once, with the
	// bytes of a slot of each layer; the runtime closes what it returns, which Lock does
	// not work with.
	Stacked func(shape layout.Shape, slotBytes []int64) (experts.Stacked, error)
	// Lock keeps expert memory from being swapped out (mlock). Opening fails where
	// the system does not allow it for the whole budget.
	Lock bool
	// Logger gets the effective configuration and background failures; nil is silent.
	Logger *slog.Logger
	// Poison overwrites the memory of experts that are dropped, so that a runner
	// that reads weights after releasing them computes nonsense instead of
	// something plausible. For tests.
	Poison bool

	sampler sampler // of memory pressure, for tests; nil: the system's
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
	}
	return o.validateReads()
}

// maxDepth bounds the goroutines that read.
const maxDepth = 1024

func (o Options) validateReads() error {
	switch {
	case o.Depth < 0 || o.Depth > maxDepth:
		return fmt.Errorf("runtime: depth is %d reads at once on a lane, want 0 (default) or 1 to %d", o.Depth, maxDepth)
	case o.SilentAfter < 0:
		return fmt.Errorf("runtime: a lane is silent after %v, want 0 (default) or more", o.SilentAfter)
	case o.Block < 0 || o.Block%blockUnit != 0:
		return fmt.Errorf("runtime: blocks of %d bytes, want 0 (default) or a multiple of %d", o.Block, blockUnit)
	case o.Engine > layout.PreadEngine:
		return fmt.Errorf("runtime: unknown engine %d", o.Engine)
	case o.Engine != layout.AutoEngine && o.FS != nil:
		return fmt.Errorf("runtime: two ways to read were given, Engine and FS: leave one of them out")
	case o.Engine != layout.AutoEngine && o.Buffered:
		return fmt.Errorf("runtime: Engine reads around the page cache, Buffered through it: leave one of them out")
	case o.Placement > PlacementFixed:
		return fmt.Errorf("runtime: unknown placement %d", o.Placement)
	case o.Stacked != nil && o.Placement != PlacementFixed:
		return fmt.Errorf("runtime: a memory of fixed addresses was given, but experts share slots: set Placement to PlacementFixed, or leave it out")
	}
	return o.validateDrive()
}

// validateDrive reports a profile that cannot set what it is given for.
func (o Options) validateDrive() error {
	d := o.Drive
	switch {
	case d == nil:
		return nil
	case d.Depth < 1 || d.Depth > maxDepth || d.BlockBytes < blockUnit || d.BlockBytes%blockUnit != 0:
		return fmt.Errorf("runtime: the drive's profile %q recommends depth %d and blocks of %d bytes, want 1 to %d and a multiple of %d: probe it again",
			d.Path, d.Depth, d.BlockBytes, maxDepth, blockUnit)
	}
	return nil
}

// blockUnit is what blocks are multiples of: the largest alignment that direct
// reads commonly need.
const blockUnit = 4096

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
