package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"outrider/layout"
	"outrider/prefetcher"
	"outrider/router"
)

// ErrOption: a run or an option that the simulation does not have.
var ErrOption = errors.New("not a valid simulation")

// Options of one simulated run. One of the three cache sizes is needed; the
// first that is set counts.
type Options struct {
	CacheBytes   int64   // capacity in bytes; needs RecordBytes
	CacheExperts int     // capacity in experts
	CacheShare   float64 // capacity over all experts of the model, over 0 to 1

	Ratio     float64 // time to read a layer's top-k experts, one after the other, over its compute time; 0 means 1
	Attention float64 // share of a layer's compute before its routing is known; 0 means 0.5
	MaxTokens int     // tokens replayed; 0 means all
	Warm      float64 // share of the trace, 0 to 1, at its beginning that the forecast only learns from
	Skip      float64 // share that is left out without learning, to compare with Warm; not both
	Batch     int     // sequences that decode in one pass; 0 and 1: the trace's tokens in their order
	Chunk     int     // prefill tokens of one sequence in one pass; 0 means 1

	// Drives that the experts lie on; none means one that takes Ratio ÷ top-k
	// layer computes for an expert of any size. With drives, RecordBytes is needed.
	Drives []Drive
	// RecordBytes is the size of an expert.
	RecordBytes int64

	Horizon  int     // layers forecast ahead; 0 chooses as the runtime does
	Margin   float64 // how many times later a victim of a speculative read must be expected; 0 means prefetcher.DefaultMargin
	Governor prefetcher.GovernorOptions

	// Predictor forecasts instead of the run's own, in runs that forecast. It must be
	// of the trace's shape and another one for each run. nil: the run's.
	Predictor router.Predictor

	// Progress is told now and then how many tokens were replayed; nil: nobody.
	Progress func(tokens int)
}

// Drive is a device in virtual time: it reads one piece at a time.
type Drive struct {
	BytesPerSecond float64
	Latency        time.Duration // of each read, before its transfer
}

const (
	maxDrives = 64
	maxBatch  = 1 << 16
)

func (o Options) withDefaults() Options {
	if o.Ratio == 0 {
		o.Ratio = 1
	}
	if o.Attention == 0 {
		o.Attention = 0.5
	}
	if o.Margin == 0 {
		o.Margin = prefetcher.DefaultMargin
	}
	o.Batch, o.Chunk = max(o.Batch, 1), max(o.Chunk, 1)
	return o
}

// Validate reports the first option that is out of range.
func (o Options) Validate() error {
	if err := o.validate(); err != nil {
		return fmt.Errorf("sim: %w: %w", ErrOption, err)
	}
	return nil
}

func (o Options) validate() error {
	switch d := o.withDefaults(); {
	case o.CacheBytes == 0 && o.CacheExperts == 0 && !(o.CacheShare > 0 && o.CacheShare <= 1):
		return fmt.Errorf("cache share is %v, want more than 0 to 1 (or a number of experts or bytes)", o.CacheShare)
	case o.CacheBytes < 0 || o.CacheExperts < 0:
		return fmt.Errorf("cache is %d bytes, %d experts, want more than 0", o.CacheBytes, o.CacheExperts)
	case o.RecordBytes < 0 || o.RecordBytes == 0 && (o.CacheBytes > 0 || len(o.Drives) > 0):
		return fmt.Errorf("record is %d bytes, want more than 0: a cache in bytes and drives need it", o.RecordBytes)
	case !(d.Ratio > 0 && d.Ratio <= 1e6):
		return fmt.Errorf("ratio is %v, want more than 0 to 1e6", o.Ratio)
	case !(d.Attention > 0 && d.Attention <= 1):
		return fmt.Errorf("attention is %v, want more than 0 to 1", o.Attention)
	case o.Batch < 0 || o.Batch > maxBatch || o.Chunk < 0 || o.Chunk > maxBatch:
		return fmt.Errorf("batch is %d and chunk %d, want 0 to %d", o.Batch, o.Chunk, maxBatch)
	case !(o.Warm >= 0 && o.Warm < 1 && o.Skip >= 0 && o.Skip < 1):
		return fmt.Errorf("warm is %v and skip %v of the trace, want 0 to less than 1", o.Warm, o.Skip)
	case o.Warm > 0 && o.Skip > 0:
		return fmt.Errorf("warm and skip are both given, want one of them: what is learned from is left out as well")
	case o.Horizon < 0:
		return fmt.Errorf("horizon is %d layers, want 0 (automatic) or more", o.Horizon)
	case !(d.Margin > 0):
		return fmt.Errorf("margin is %v, want more than 0", o.Margin)
	case len(o.Drives) > maxDrives:
		return fmt.Errorf("there are %d drives, want at most %d", len(o.Drives), maxDrives)
	}
	for i, d := range o.Drives {
		if !(d.BytesPerSecond > 0) || math.IsInf(d.BytesPerSecond, 0) || d.Latency < 0 || d.Latency > time.Hour {
			return fmt.Errorf("drive %d reads %v bytes/s with a latency of %v, want more than 0 and 0 to 1h", i, d.BytesPerSecond, d.Latency)
		}
	}
	return nil
}

// capacity is the cache's size in experts.
func (o Options) capacity(shape layout.Shape) (int, error) {
	n := o.CacheExperts
	switch {
	case o.CacheBytes > 0:
		n = int(min(o.CacheBytes/o.RecordBytes, int64(shape.Count())))
	case n == 0:
		n = int(math.Round(o.CacheShare * float64(shape.Count())))
	}
	n = min(n, shape.Count())
	if n < shape.TopK {
		return 0, fmt.Errorf("sim: %w: a cache of %d experts cannot hold the %d of one layer of one token; raise the cache size", ErrOption, n, shape.TopK)
	}
	return n, nil
}
