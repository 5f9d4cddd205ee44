package stream

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/llama"
	"outrider/runtime"
	"outrider/trace"
)

// DecoderOptions say how a model is used.
type DecoderOptions struct {
	llama.ContextOptions // Watch is set here
	// NoLookahead does not apply the next layers' routers to the state that each router
	// sees.
	NoLookahead bool
	// Record is called with the header of the model's trace before the first pass, and
	// gets each sequence's routing until the decoder is closed; nil records nothing.
	Record func(trace.Header) (trace.Sink, error)
}

// Decoder runs one context of a model. Used from one goroutine.
type Decoder struct {
	*llama.Context
	model    *Model
	watch    *llama.Watch
	sessions []*runtime.Session // by sequence; nil before its first token
	sink     trace.Sink
	look     bool

	ctx    context.Context
	items  []llama.Item // of the pass
	use    runtime.Use
	coming arrival
	layer  int   // that it is of; -1 for none
	began  bool  // the pass has used a layer
	err    error // that stopped the pass
	fits   int   // where it was errCut: tokens that will fit
	chunk  int   // most tokens of a pass
	passes int   // since the chunk last changed
	work   scratch

	// Cuts counts passes that were given up and begun again with fewer tokens.
	Cuts int64
}

// errCut stops a pass that needs more experts of a layer than the budget holds.
var errCut = errors.New("the pass needs more experts of a layer than fit")

// NewDecoder makes a context.
func (m *Model) NewDecoder(ctx context.Context, o DecoderOptions) (*Decoder, error) {
	d := &Decoder{model: m, look: !o.NoLookahead, sessions: make([]*runtime.Session, max(o.Sequences, 1))}
	d.watch = llama.NewWatch(d.told)
	o.Watch = d.watch
	if o.Threads == 0 && !m.Whole() {
		// Reads take time of a core too, and threads that compute wait for each other:
		// where all cores compute, each read delays all of them, and they delay the reads.
		// A batch is computed for so long that they matter less.
		o.Threads, o.BatchThreads = max(goruntime.NumCPU()-1, 1), goruntime.NumCPU()
	}
	var err error
	if d.Context, err = m.NewContext(o.ContextOptions); err != nil {
		d.watch.Close()
		return nil, err
	}
	d.chunk = d.Batch
	if m.Forgetful {
		d.chunk = min(d.chunk, d.certain())
	}
	if o.Record != nil {
		h := m.Runtime.TraceHeader()
		h.Weights = m.weighted
		d.sink, err = o.Record(h)
	}
	if err == nil && m.Whole() {
		err = m.Runtime.Preload(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stream: %w", err), d.Close())
	}
	return d, nil
}

// certain is how many tokens fit whatever they choose.
func (d *Decoder) certain() int {
	n, shape := d.Batch, d.model.Runtime.Shape()
	for l := range shape.Layers {
		if held := d.capacity(l); held < shape.Experts {
			n = min(n, held/d.model.topK)
		}
	}
	return max(n, 1)
}

// capacity is how many experts of a layer the budget holds.
func (d *Decoder) capacity(layer int) int {
	return int(d.model.Runtime.Stats().Budget / d.model.Runtime.SlotBytes(layer))
}

// Decode computes tokens, in as many passes as the memory for experts needs, and calls
// each (if not nil) with the logits of every token that wants them, valid during the
// call. Sequence and position are the caller's, as llama.cpp wants them. After an
// error nothing of the pass that failed is left in the context.
func (d *Decoder) Decode(ctx context.Context, items []llama.Item, each func(i int, logits []float32) error) error {
	for _, it := range items {
		if it.Sequence < 0 || int(it.Sequence) >= len(d.sessions) {
			return fmt.Errorf("stream: a token is of sequence %d, the decoder has %d", it.Sequence, len(d.sessions))
		}
	}
	for done := 0; done < len(items); {
		n := min(len(items)-done, d.chunk)
		err := d.pass(ctx, items[done:done+n])
		if errors.Is(err, errCut) && n > 1 {
			d.chunk, d.passes = min(d.fits, n-1), 0
			d.Cuts++
			continue
		}
		if err != nil {
			return err
		}
		if err := d.deliver(items[done:done+n], done, each); err != nil {
			return err
		}
		done += n
		d.grow(n)
	}
	return nil
}

// grow tries longer passes again when shorter ones have fitted for a while.
func (d *Decoder) grow(n int) {
	const patience = 8
	if n < d.chunk || d.chunk == d.Batch || d.model.Forgetful {
		return
	}
	if d.passes++; d.passes == patience {
		d.chunk, d.passes = min(d.chunk+d.chunk/8+1, d.Batch), 0
	}
}

func (d *Decoder) deliver(items []llama.Item, first int, each func(int, []float32) error) error {
	for i, it := range items {
		if !it.Logits || each == nil {
			continue
		}
		logits, err := d.Logits(i)
		if err == nil {
			err = each(first+i, logits)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pass computes one batch, wholly or not at all.
func (d *Decoder) pass(ctx context.Context, items []llama.Item) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.ctx, d.items, d.err, d.began, d.layer = ctx, items, nil, false, -1
	if d.model.resident() && d.sink == nil {
		d.watch.Pass(ggml.PassNothing)
	} else {
		d.watch.Pass(ggml.PassWeights)
	}
	if err := d.begin(); err != nil {
		return err
	}
	err := d.compute(items)
	d.use.Release()
	d.use, d.items = runtime.Use{}, nil
	if d.err != nil {
		err = d.err
	}
	if err != nil && !errors.Is(err, llama.ErrContextFull) {
		return errors.Join(err, d.undo(items))
	}
	return err
}

// begin tells each session of the batch its tokens.
func (d *Decoder) begin() error {
	d.work.group(d.items, len(d.sessions))
	for seq, tokens := range d.work.tokens {
		if len(tokens) == 0 {
			continue
		}
		if d.sessions[seq] == nil {
			d.sessions[seq] = d.model.Runtime.NewSession()
			if d.sink != nil {
				d.sessions[seq].Record(d.sink)
			}
		}
		phase := trace.Decode
		if len(tokens) > 1 {
			phase = trace.Prefill
		}
		d.sessions[seq].Step(phase, tokens)
	}
	return nil
}

// undo takes the pass's tokens back from llama.cpp and from the sessions.
func (d *Decoder) undo(items []llama.Item) error {
	var errs []error
	for seq, tokens := range d.work.tokens {
		if len(tokens) == 0 {
			continue
		}
		first := slices.IndexFunc(items, func(it llama.Item) bool { return int(it.Sequence) == seq })
		errs = append(errs, d.Cut(int32(seq), items[first].Position))
		if d.began {
			errs = append(errs, d.sessions[seq].Rollback(len(tokens)))
		}
	}
	return errors.Join(errs...)
}

// told is called by llama.cpp, in the middle of a graph, when a layer's router has chosen.
// The experts of the layer before have been computed by then.
func (d *Decoder) told(t *ggml.Tensor, ask bool) bool {
	if !ask && d.err == nil {
		d.err = d.serve(t)
	}
	return d.err == nil
}

// End ends a sequence: what its routers chose is forgotten, and its trace complete.
func (d *Decoder) End(sequence int) error {
	if sequence < 0 || sequence >= len(d.sessions) {
		return fmt.Errorf("stream: no sequence %d", sequence)
	}
	return errors.Join(d.Cut(int32(sequence), 0), d.end(sequence))
}

func (d *Decoder) end(sequence int) error {
	s := d.sessions[sequence]
	d.sessions[sequence] = nil
	if s == nil {
		return nil
	}
	return s.Close()
}

// Close ends all sequences and frees the context. The sink is the caller's to close.
func (d *Decoder) Close() error {
	var errs []error
	for seq := range d.sessions {
		errs = append(errs, d.end(seq))
	}
	errs = append(errs, d.Context.Close())
	d.watch.Close()
	return errors.Join(errs...)
}
