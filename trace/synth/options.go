package synth

import (
	"fmt"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// version is counted up when the same options make another trace than before.
const version = 1

// Kind says what structure a trace has; see the package documentation.
type Kind string

const (
	Uniform Kind = "uniform"
	Zipf    Kind = "zipf"
	Markov  Kind = "markov"
	Domains Kind = "domains"
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Uniform, Zipf, Markov, Domains} }

// Limits of options.
const (
	MaxSkew       = 8
	MaxVocabulary = 1 << 20
	// MaxOrders is the most experts over all layers and domains: each takes 8 bytes.
	MaxOrders = 1 << 23
)

// Options say how large a trace is, and how strong its structure. A kind ignores
// what does not concern it.
type Options struct {
	Shape     layout.Shape // required
	Tokens    int          // of all sequences together, required: 1 or more
	Sequences int          // 1 to Tokens, one after the other, their lengths equal or 1 apart; 0 means 1
	Prompt    int          // tokens at the start of each sequence that are prefill; 0 to the shortest length
	Seed      uint64

	// Skew is the exponent of the load: the expert of rank r is drawn with
	// probability in proportion to r^-Skew; every layer ranks experts in an order of
	// its own. 0 means 0.5 for markov and 1 otherwise; below 0 means an even load; at
	// most MaxSkew.
	Skew float64

	// LayerPull and PastPull are the shares of draws that follow the layer before
	// and the token before. 0 means 0.6 and 0.3 for markov, 0.4 and 0.2 for domains;
	// below 0 means none; together at most 1.
	LayerPull, PastPull float64

	// Domains is how many domains there are; 0 means 4; 2 or more. Dwell is
	// the mean number of tokens until a sequence changes to another one; 0 means 200.
	// The change is as likely at each token. A sequence starts in any domain.
	Domains, Dwell int

	// Vocabulary is how many token ids there are, 1 to MaxVocabulary, drawn by a
	// Zipf law of exponent 1; 0 means 32000.
	Vocabulary int
}

// defaults fills in what is 0, and turns "none" into 0.
func (o Options) defaults(kind Kind) Options {
	fill := func(v *float64, standard float64) {
		switch {
		case *v == 0:
			*v = standard
		case *v < 0:
			*v = 0
		}
	}
	skew, layer, past := 1.0, 0.4, 0.2
	if kind == Markov {
		skew, layer, past = 0.5, 0.6, 0.3
	}
	fill(&o.Skew, skew)
	fill(&o.LayerPull, layer)
	fill(&o.PastPull, past)
	for _, v := range []struct {
		at       *int
		standard int
	}{{&o.Sequences, 1}, {&o.Domains, 4}, {&o.Dwell, 200}, {&o.Vocabulary, 32000}} {
		if *v.at == 0 {
			*v.at = v.standard
		}
	}
	if kind != Domains {
		o.Domains = 1
	}
	return o
}

// validate looks at options after defaults.
func (o *Options) validate(kind Kind) error {
	header := trace.Header{Shape: o.Shape}
	if err := header.Validate(); err != nil {
		return err
	}
	switch {
	case o.Tokens < 1:
		return fmt.Errorf("Tokens is %d, want 1 or more", o.Tokens)
	case o.Sequences < 1 || o.Sequences > o.Tokens:
		return fmt.Errorf("Sequences is %d, want 1 to %d, the number of tokens", o.Sequences, o.Tokens)
	case o.Prompt < 0 || o.Prompt > o.Tokens/o.Sequences:
		return fmt.Errorf("Prompt is %d, want 0 to %d, the tokens of the shortest sequence", o.Prompt, o.Tokens/o.Sequences)
	case !(o.Skew <= MaxSkew): // NaN too
		return fmt.Errorf("Skew is %v, want at most %d (below 0: an even load)", o.Skew, MaxSkew)
	case !(o.LayerPull <= 1):
		return fmt.Errorf("LayerPull is %v, want at most 1 (below 0: none)", o.LayerPull)
	case !(o.PastPull <= 1):
		return fmt.Errorf("PastPull is %v, want at most 1 (below 0: none)", o.PastPull)
	case !(o.LayerPull+o.PastPull <= 1):
		return fmt.Errorf("LayerPull %v and PastPull %v make %v together, want at most 1", o.LayerPull, o.PastPull, o.LayerPull+o.PastPull)
	case kind == Domains && o.Domains < 2:
		return fmt.Errorf("Domains is %d, want 2 or more", o.Domains)
	case o.Dwell < 1:
		return fmt.Errorf("Dwell is %d, want 1 or more", o.Dwell)
	case o.Vocabulary < 1 || o.Vocabulary > MaxVocabulary:
		return fmt.Errorf("Vocabulary is %d, want 1 to %d", o.Vocabulary, MaxVocabulary)
	case o.Domains > MaxOrders/o.Shape.Count():
		return fmt.Errorf("Domains is %d, want at most %d for %d experts", o.Domains, MaxOrders/o.Shape.Count(), o.Shape.Count())
	}
	return nil
}

// header describes the trace so that it can be made again.
func (o *Options) header(kind Kind) trace.Header {
	var s strings.Builder
	fmt.Fprintf(&s, "outrider trace/synth, version %d: %s, seed %d, tokens %d, sequences %d, prompt %d, vocabulary %d",
		version, kind, o.Seed, o.Tokens, o.Sequences, o.Prompt, o.Vocabulary)
	if kind != Uniform {
		fmt.Fprintf(&s, ", skew %g", o.Skew)
	}
	if kind == Markov || kind == Domains {
		fmt.Fprintf(&s, ", layer pull %g, past pull %g", o.LayerPull, o.PastPull)
	}
	if kind == Domains {
		fmt.Fprintf(&s, ", domains %d, dwell %d", o.Domains, o.Dwell)
	}
	h := trace.Header{
		Model: "synthetic " + string(kind), Shape: o.Shape, Phase: trace.Decode, Weights: true, Tokens: true,
		Source: s.String(), IDs: trace.IDsLogical, Ranked: trace.Yes, Sequences: trace.Yes,
	}
	if o.Prompt > 0 {
		h.Phase = trace.PhaseUnknown
	}
	return h
}
