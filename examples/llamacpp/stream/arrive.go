package stream

import (
	"context"
	"errors"

	"outrider/examples/llamacpp/llama"
	"outrider/runtime"
)

// arrival is the experts of a layer on their way under llama.cpp, which computes the
// layer meanwhile (Options.Overlap).
type arrival struct {
	experts []int32       // reused
	done    chan struct{} // nil: none are
}

// compute runs a batch through llama.cpp. The use of its last layer is left.
func (d *Decoder) compute(items []llama.Item) error {
	memory := d.model.overlap
	if memory == nil {
		return d.Context.Decode(items)
	}
	if err := memory.Begin(d.ctx); err != nil {
		return err
	}
	err := d.Context.Decode(items)
	failed := d.arrived()
	if unbidden := memory.End(); failed == nil {
		failed = unbidden
	}
	if d.err == nil {
		d.err = failed
	}
	return err
}

// bringUnder asks for the experts and publishes those that are in memory; a goroutine
// publishes the others as they arrive. Until arrived, the use is the goroutine's.
func (d *Decoder) bringUnder(layer int) error {
	use, err := d.model.Runtime.Use(d.ctx, layer, d.work.routed(d.sessions))
	if err != nil {
		return err
	}
	d.use, d.began = use, true
	memory, a := d.model.overlap, &d.coming
	a.experts = d.work.experts(a.experts[:0])
	missing := false
	for _, e := range a.experts {
		ex, ok := use.Expert(int(e))
		if !ok {
			missing = true
			continue
		}
		if err := d.publish(ex); err != nil {
			return err
		}
	}
	if !missing {
		return nil
	}
	memory.Expect(layer, a.experts)
	a.done = make(chan struct{})
	go func(ctx context.Context, done chan<- struct{}) {
		defer close(done)
		if err := d.publishAll(ctx, use); err != nil {
			memory.Fail(err)
		}
	}(d.ctx, a.done)
	return nil
}

func (d *Decoder) publishAll(ctx context.Context, use runtime.Use) error {
	for ex, err := range use.Ready(ctx) {
		if err == nil {
			err = d.publish(ex)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Decoder) publish(ex runtime.Expert) error {
	t, ok := ex.At(0)
	if !ok {
		return runtime.ErrReleased
	}
	return d.model.overlap.Publish(t.Data)
}

// arrived waits until the last layer's experts are there, which is so when llama.cpp
// has computed it, or have failed. The use is the decoder's again.
func (d *Decoder) arrived() error {
	memory := d.model.overlap
	if memory == nil {
		return nil
	}
	if d.coming.done != nil {
		<-d.coming.done
		d.coming.done = nil
		memory.Expect(0, nil)
	}
	err := memory.Err()
	if errors.Is(err, runtime.ErrNeedsWaves) {
		return d.halve()
	}
	return err
}
