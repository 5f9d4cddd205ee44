package train

import (
	"errors"
	"fmt"
	"math"

	"outrider/router/learned"
)

var (
	// ErrOption: an option is out of range.
	ErrOption = errors.New("option out of range")
	// ErrTooLittle: the traces hold too few tokens to train on and hold some out.
	ErrTooLittle = errors.New("too few tokens to train on")
)

// Options say how to train. The zero value is good for any trace.
type Options struct {
	// Seed chooses what is held out, the examples, their order, and where the
	// weights start. The same seed, traces and program give the same network on
	// the same kind of processor.
	Seed uint64
	// HoldOut is the share of sequences that is not trained on, below 1. 0 means 0.2.
	HoldOut float64
	// Epochs is the most times that all examples are seen. 0 means 30.
	Epochs int
	// Patience is after how many epochs without a better held-out loss to stop.
	// 0 means 3.
	Patience int
	// Batch is how many examples, all of one layer, one step is made of. 0 means 32.
	Batch int
	// Rate is Adam's, in the first epoch. 0 means 0.002.
	Rate float64
	// Hidden and Embedding are sizes of the network; see learned.Dims. 0 means 8 and
	// 16: with 16 units a forecast takes nearly twice the time and is hardly better.
	Hidden, Embedding int
	// MemoryBytes bounds what the examples take; if there are more tokens, a
	// random part of their layers is taken. 0 means 256 MiB. The traces, which the
	// caller holds, and the online predictor are not counted.
	MemoryBytes int64
	// Progress is told now and then how far it is; nil: nobody. It must not block for long.
	Progress func(Progress)
}

// Progress is how far a training is.
type Progress struct {
	Stage       Stage
	Done, Total int64  // tokens replayed, or examples learned from
	Epoch       *Epoch // the last one that ended, nil before that
}

// Stage is what a training is doing.
type Stage int

// The stages, in their order.
const (
	Replaying Stage = iota // through the online predictor
	Learning
)

// Validate reports the first option that is out of range.
func (o Options) Validate() error {
	fail := func(name string, value any, want string) error {
		return fmt.Errorf("train: %w: %s is %v, want %s", ErrOption, name, value, want)
	}
	switch {
	case !(o.HoldOut >= 0 && o.HoldOut < 1):
		return fail("HoldOut", o.HoldOut, "0 to less than 1")
	case o.Epochs < 0:
		return fail("Epochs", o.Epochs, "0 or more")
	case o.Patience < 0:
		return fail("Patience", o.Patience, "0 or more")
	case o.Batch < 0 || o.Batch > 4096:
		return fail("Batch", o.Batch, "0 to 4096")
	case !(o.Rate >= 0 && o.Rate <= 0.1):
		return fail("Rate", o.Rate, "0 to 0.1")
	case o.Hidden < 0 || o.Hidden > learned.MaxHidden:
		return fail("Hidden", o.Hidden, fmt.Sprint("0 to ", learned.MaxHidden))
	case o.Embedding < 0 || o.Embedding > learned.MaxEmbedding:
		return fail("Embedding", o.Embedding, fmt.Sprint("0 to ", learned.MaxEmbedding))
	case o.MemoryBytes < 0:
		return fail("MemoryBytes", o.MemoryBytes, "0 or more")
	}
	return nil
}

func (o Options) withDefaults() Options {
	set := func(n *int, to int) {
		if *n == 0 {
			*n = to
		}
	}
	set(&o.Epochs, 30)
	set(&o.Patience, 3)
	set(&o.Batch, 32)
	set(&o.Hidden, 8)
	set(&o.Embedding, 16)
	if o.HoldOut == 0 {
		o.HoldOut = 0.2
	}
	if o.Rate == 0 {
		o.Rate = 0.002
	}
	if o.MemoryBytes == 0 {
		o.MemoryBytes = 256 << 20
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return o
}

// rateOf is Adam's rate in an epoch, counted from 1.
func (o Options) rateOf(epoch int) float64 { return o.Rate * math.Pow(rateKeep, float64(epoch-1)) }

// rateKeep is what is left of the rate after an epoch.
const rateKeep = 0.85
