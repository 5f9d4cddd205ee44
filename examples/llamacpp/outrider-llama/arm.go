package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"outrider/examples/llamacpp/llama"
	"outrider/examples/llamacpp/stream"
	"outrider/layout"
	"outrider/layout/gguf"
	"outrider/runtime"
	"outrider/trace"
)

// engine computes tokens: llama.cpp alone, or with experts that are streamed.
type engine interface {
	Decode(ctx context.Context, items []llama.Item, each func(i int, logits []float32) error) error
	Shift(sequence, keep, drop int32) error
	End(sequence int) error
	Close() error
}

// arm is a model, open, in one mode.
type arm struct {
	engine
	model   *llama.Model
	stream  *stream.Model // nil where llama.cpp is alone
	context int           // tokens
	trace   interface{ Close() error }
}

// open opens the model in the mode that was asked for.
func (c *command) open(ctx context.Context, sequences int) (a *arm, err error) {
	lib, err := llama.Load(c.Lib)
	if err != nil {
		return nil, err
	}
	options := llama.ContextOptions{Tokens: c.Context, Batch: c.Batch, Sequences: sequences, Threads: c.Threads, FlashAttention: c.FlashAttention}
	a = &arm{context: c.Context}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if c.Mode == "mmap" || c.Mode == "resident" {
		return a, a.openStock(lib, c.Model, c.Mode == "mmap", options)
	}
	return a, a.openStream(ctx, lib, c, options)
}

func (a *arm) openStock(lib *llama.Lib, path string, mapped bool, options llama.ContextOptions) (err error) {
	file, err := gguf.Open(layout.OS(), path) // for the first shard
	if err != nil {
		return err
	}
	if a.model, err = lib.Open(file.Shards()[0].Path, mapped); err != nil {
		return err
	}
	c, err := a.model.NewContext(options)
	if err != nil {
		return err
	}
	a.engine = stock{c}
	return nil
}

func (a *arm) openStream(ctx context.Context, lib *llama.Lib, c *command, options llama.ContextOptions) (err error) {
	o := stream.Options{Path: c.Model, Store: c.Store, Budget: c.Budget.Of, Overlap: c.Overlap, Runtime: runtime.Options{FixedBudget: true, Lock: c.Lock}}
	if c.Dense == "mapped" {
		o.Dense = stream.DenseMapped
	}
	if c.Mode == "demand" {
		o.Runtime.Keep = runtime.KeepLRU
	}
	if a.stream, err = stream.Open(ctx, lib, o); err != nil {
		return err
	}
	a.model = a.stream.Model
	d := stream.DecoderOptions{ContextOptions: options, NoLookahead: !c.Lookahead || c.Mode == "demand"}
	if c.TraceOut != "" {
		d.Record = func(h trace.Header) (trace.Sink, error) { return a.record(c.TraceOut, h) }
	}
	decoder, err := a.stream.NewDecoder(ctx, d)
	if err != nil {
		return err
	}
	a.engine = decoder // never a nil *Decoder, which would look like an engine
	return nil
}

func (a *arm) record(path string, h trace.Header) (trace.Sink, error) {
	w, err := trace.Create(path, h)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("--trace-out: %w: name another file, or remove it first", err)
	}
	if err != nil {
		return nil, fmt.Errorf("--trace-out: %w", err)
	}
	a.trace = w
	return w, nil
}

// stats are the runtime's counters, zero where there is none.
func (a *arm) stats() runtime.Stats {
	if a.stream == nil {
		return runtime.Stats{}
	}
	return a.stream.Runtime.Stats()
}

// Close ends everything that was opened.
func (a *arm) Close() error {
	var errs []error
	if a.engine != nil {
		errs = append(errs, a.engine.Close())
	}
	if a.trace != nil {
		errs = append(errs, a.trace.Close())
	}
	switch {
	case a.stream != nil:
		errs = append(errs, a.stream.Close())
	case a.model != nil:
		errs = append(errs, a.model.Close())
	}
	return errors.Join(errs...)
}

// stock is llama.cpp alone.
type stock struct{ *llama.Context }

// Decode computes tokens batch by batch.
func (s stock) Decode(ctx context.Context, items []llama.Item, each func(i int, logits []float32) error) error {
	for done := 0; done < len(items); {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := items[done:min(done+s.Batch, len(items))]
		if err := s.Context.Decode(part); err != nil {
			return err
		}
		for i, it := range part {
			if !it.Logits || each == nil {
				continue
			}
			logits, err := s.Logits(i)
			if err == nil {
				err = each(done+i, logits)
			}
			if err != nil {
				return err
			}
		}
		done += len(part)
	}
	return nil
}

// End forgets a sequence.
func (s stock) End(sequence int) error { return s.Cut(int32(sequence), 0) }
