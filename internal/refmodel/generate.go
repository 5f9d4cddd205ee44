package refmodel

import (
	"context"
	"fmt"

	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// Options configures a Generator. The zero value works.
type Options struct {
	// Chunk is the most prompt tokens of one pass; 0 means the whole prompt.
	// It changes the reads and the memory needed, never the result.
	Chunk int
	// Context is the longest sequence in tokens; 0 means the model's own
	// limit, which is also the most.
	Context int
	// Lookahead tells the runtime, in decoding, what each router sees
	// (runtime.Session.Lookahead), where the model's routers are at hand. It changes
	// the reads, never the result.
	Lookahead bool
	// IgnoreEnd goes on after the token that ends a text.
	IgnoreEnd bool
	// OnRoute, if not nil, is told what each router chose, layer by layer in
	// every pass, one choice a token, best expert first. The choices are valid
	// during the call only.
	OnRoute func(layer int, choices []router.Choice)
	// OnSession, if not nil, is told the runtime's session of each sequence
	// before its first pass, for instance to record a trace. Its error ends
	// the call that started the sequence.
	OnSession func(*runtime.Session) error
}

func (o Options) validate(c Config) error {
	switch {
	case o.Chunk < 0:
		return fmt.Errorf("refmodel: chunk is %d tokens, want 0 (whole prompt) or more", o.Chunk)
	case o.Context < 0 || o.Context > c.Context:
		return fmt.Errorf("refmodel: context is %d tokens, want 0 (the model's) to %d", o.Context, c.Context)
	}
	return nil
}

// Stop says why a generation ended.
type Stop uint8

const (
	StopLength  Stop = iota // as many tokens as asked for
	StopEnd                 // the model ended the text
	StopContext             // the context limit
)

// String is "length", "end" or "context".
func (s Stop) String() string {
	return [...]string{"length", "end", "context"}[min(s, StopContext)]
}

// Result is what a generation gave.
type Result struct {
	Tokens []int32 // without the prompt and without an end token that stopped it
	Text   string  // of Tokens
	Stop   Stop
}

// Generator runs one sequence at a time through a model whose experts the
// runtime streams. For one goroutine.
type Generator struct {
	options Options
	open    func() (experts, error) // starts a sequence
	runner  *runner
}

func newGenerator(m *Model, open func() (experts, error), o Options) (*Generator, error) {
	if err := o.validate(m.Config); err != nil {
		return nil, err
	}
	if o.Context == 0 {
		o.Context = m.Config.Context
	}
	g := &Generator{options: o, open: open, runner: newRunner(m)}
	g.runner.onRoute = o.OnRoute
	return g, g.Reset()
}

// Close ends the sequence and its session, and returns what the session's
// Close returns. The generator needs a Reset before it can be used again; a
// second Close does nothing.
func (g *Generator) Close() error {
	e := g.runner.experts
	if e == nil {
		return nil
	}
	g.runner.experts = nil
	return e.close()
}

// Reset ends the sequence, as Close does, and starts an empty one. Buffers are kept.
func (g *Generator) Reset() error {
	g.runner.cache.length = 0
	clear(g.runner.logits)
	if err := g.Close(); err != nil {
		return err
	}
	e, err := g.open()
	if err != nil {
		return err
	}
	g.runner.experts = e
	return nil
}

// Len is the number of tokens in the sequence.
func (g *Generator) Len() int { return g.runner.cache.length }

// Logits is the forecast after the last token of the sequence, one a token of
// the vocabulary. The slice is valid until the next pass; zeros before the first.
func (g *Generator) Logits() []float32 { return g.runner.logits }

// Prefill appends tokens to the sequence in passes of at most Options.Chunk.
// On an error the chunks before it are in the sequence.
func (g *Generator) Prefill(ctx context.Context, tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("refmodel: %w: give at least one token", ErrEmptyPrompt)
	}
	if have := g.Len(); len(tokens) > g.options.Context-have {
		return fmt.Errorf("refmodel: %w: %d tokens after %d in the sequence, the context limit is %d: shorten the prompt or raise Options.Context (the model has %d)",
			ErrPromptTooLong, len(tokens), have, g.options.Context, g.runner.model.Config.Context)
	}
	for len(tokens) > 0 {
		n := len(tokens)
		if g.options.Chunk > 0 {
			n = min(n, g.options.Chunk)
		}
		if err := g.runner.pass(ctx, trace.Prefill, tokens[:n]); err != nil {
			return err
		}
		tokens = tokens[n:]
	}
	return nil
}

// Decode appends tokens one a pass, as in generation, whatever the model would
// have chosen: the teacher-forced decode that benchmarks use.
func (g *Generator) Decode(ctx context.Context, tokens ...int32) error {
	for i := range tokens {
		if g.Len() >= g.options.Context {
			return fmt.Errorf("refmodel: %w: the sequence fills the context limit of %d tokens: raise Options.Context (the model has %d) or Reset",
				ErrPromptTooLong, g.options.Context, g.runner.model.Config.Context)
		}
		if err := g.runner.pass(ctx, trace.Decode, tokens[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

// Generate starts a new sequence with the prompt and continues it by at most n
// tokens. onToken (may be nil) gets each token and the text complete with it,
// see Decoder; its error ends the generation and is returned as it is. With an
// error the result holds what was generated before.
func (g *Generator) Generate(ctx context.Context, prompt []int32, n int, sampler Sampler, onToken func(id int32, text string) error) (Result, error) {
	if err := g.Reset(); err != nil {
		return Result{}, err
	}
	if err := g.Prefill(ctx, prompt); err != nil {
		return Result{}, err
	}
	tokenizer := g.runner.model.Tokenizer
	decoder := tokenizer.NewDecoder()
	result := Result{Stop: StopLength}
	var err error
	for len(result.Tokens) < n {
		id := sampler.Sample(g.Logits())
		if id == tokenizer.End() && !g.options.IgnoreEnd {
			result.Stop = StopEnd
			break
		}
		result.Tokens = append(result.Tokens, id)
		if onToken != nil {
			if err = onToken(id, decoder.Next(id)); err != nil {
				break
			}
		}
		if len(result.Tokens) == n {
			break
		}
		if g.Len() == g.options.Context {
			result.Stop = StopContext
			break
		}
		if err = g.Decode(ctx, id); err != nil {
			break
		}
	}
	result.Text = tokenizer.Decode(result.Tokens)
	return result, err
}
