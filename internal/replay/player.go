// Package replay plays a trace against a runtime: real reads, real memory, real
// policies; only the compute of the layers is imitated.
//
//	passes.Schedule ─► Player ─► runtime.Use … Wait ─► reads
//	                     │
//	                     └─ compute: attention | stall | experts
//
// internal/sim does the same in virtual time.
package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outrider/internal/passes"
	"outrider/runtime"
)

// Options say how long a layer computes.
type Options struct {
	// Layer is the compute time of a layer in a pass, of which the share
	// Attention (0 means 0.5) comes before its routing is known.
	Layer     time.Duration
	Attention float64
	// Compute passes time; nil means Sleep.
	Compute func(ctx context.Context, d time.Duration) error
}

// Player plays passes against a runtime, which stays the caller's. For one
// goroutine.
type Player struct {
	rt       *runtime.Runtime
	schedule *passes.Schedule
	opts     Options
	union    *passes.Union
	sessions map[int64]*runtime.Session
	routed   []runtime.Routed

	Passes int           // played
	Tokens int           // played
	Took   time.Duration // by Play in all
}

// New makes a player at the start of the schedule, which is then its own.
func New(rt *runtime.Runtime, s *passes.Schedule, o Options) *Player {
	if o.Attention == 0 {
		o.Attention = 0.5
	}
	if o.Compute == nil {
		o.Compute = Sleep
	}
	return &Player{rt: rt, schedule: s, opts: o, union: passes.NewUnion(s.Shape()), sessions: map[int64]*runtime.Session{}}
}

// Play plays up to so many passes; more reports whether there are others. It ends
// with the context.
func (p *Player) Play(ctx context.Context, n int) (more bool, err error) {
	began := time.Now()
	defer func() { p.Took += time.Since(began) }()
	for range n {
		parts := p.schedule.Next()
		if parts == nil {
			return false, nil
		}
		if err := p.pass(ctx, parts); err != nil {
			return false, fmt.Errorf("pass %d: %w", p.Passes, err)
		}
		p.Passes++
	}
	return true, nil
}

// pass executes all layers for some tokens of some sequences.
func (p *Player) pass(ctx context.Context, parts []passes.Part) error {
	for _, part := range parts {
		s := p.sessions[part.Seq]
		if s == nil {
			s = p.rt.NewSession()
			p.sessions[part.Seq] = s
		}
		s.Step(p.schedule.Known(part))
		p.Tokens += len(part.Tokens)
	}
	for layer := range p.schedule.Shape().Layers {
		if err := p.layer(ctx, parts, layer); err != nil {
			return fmt.Errorf("layer %d: %w", layer, err)
		}
	}
	for _, part := range parts {
		if part.Last {
			if err := p.sessions[part.Seq].Close(); err != nil {
				return err
			}
			delete(p.sessions, part.Seq)
		}
	}
	return nil
}

func (p *Player) layer(ctx context.Context, parts []passes.Part, layer int) error {
	before := time.Duration(float64(p.opts.Layer) * p.opts.Attention)
	if err := p.opts.Compute(ctx, before); err != nil {
		return err
	}
	p.union.Gather(p.schedule, parts, layer)
	p.routed = p.routed[:0]
	for i, part := range parts {
		p.routed = append(p.routed, runtime.Routed{Session: p.sessions[part.Seq], Choices: p.union.Choices[i]})
	}
	use, err := p.rt.Use(ctx, layer, p.routed)
	if err != nil {
		return err
	}
	defer use.Release()
	after := p.opts.Layer - before
	switch err := use.Wait(ctx); {
	case err == nil:
		return p.opts.Compute(ctx, after)
	case !errors.Is(err, runtime.ErrNeedsWaves):
		return err
	}
	each := after / time.Duration(max(use.Len(), 1))
	for ex, err := range use.Ready(ctx) {
		if err == nil {
			err = p.opts.Compute(ctx, each)
			ex.Release()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close ends the sessions that are still open.
func (p *Player) Close() (err error) {
	for seq, s := range p.sessions {
		err = errors.Join(err, s.Close())
		delete(p.sessions, seq)
	}
	return err
}

// Sleep passes time without using the processor.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
