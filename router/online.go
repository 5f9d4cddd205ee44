package router

import (
	"fmt"
	"sync"

	"outrider/layout"
)

// OnlineOptions bounds the memory of the online predictor. The zero value is
// good for any model.
type OnlineOptions struct {
	// TokenSlots is the size of a layer's table of tokens, a power of two.
	// 0 means 4096. A runner that tells no token ids does not pay for it.
	TokenSlots int
	// TokenWidth is how many experts are remembered of one token. 0 means
	// three times top-k, at most the experts of a layer.
	TokenWidth int
	// MaxTies is the largest number of experts a layer for which a weight for
	// each pair of experts is learned. 0 means 256, negative means none.
	MaxTies int
}

const (
	maxTokenSlots = 1 << 20
	maxTokenWidth = 1 << 10
)

// Validate reports the first option that is out of range.
func (o OnlineOptions) Validate() error {
	switch {
	case o.TokenSlots < 0 || o.TokenSlots > maxTokenSlots || o.TokenSlots&(o.TokenSlots-1) != 0:
		return fmt.Errorf("router: %w: TokenSlots is %d, want a power of two up to %d, or 0", ErrOption, o.TokenSlots, maxTokenSlots)
	case o.TokenWidth < 0 || o.TokenWidth > maxTokenWidth:
		return fmt.Errorf("router: %w: TokenWidth is %d, want 0 to %d", ErrOption, o.TokenWidth, maxTokenWidth)
	}
	return nil
}

func (o OnlineOptions) withDefaults(shape layout.Shape) OnlineOptions {
	if o.TokenSlots == 0 {
		o.TokenSlots = 4096
	}
	if o.TokenWidth == 0 {
		o.TokenWidth = 3 * shape.TopK
	}
	o.TokenWidth = min(o.TokenWidth, shape.Experts)
	if o.MaxTies == 0 {
		o.MaxTies = 256
	}
	return o
}

// Online is the default predictor: logistic regressions that are trained as
// they run, on features from decayed counts. It starts from nothing and needs
// no profile. See the package's comment for what it looks at.
//
// Learned state is shared by all histories and guarded by a mutex a layer, so
// that sequences which are in different layers do not wait for each other.
type Online struct {
	shape  layout.Shape
	opts   OnlineOptions
	layers []onlineLayer
}

var _ Predictor = (*Online)(nil)

// NewOnline makes an online predictor that has seen nothing. It fails on a
// shape or options that are not valid, and with ErrShape on a shape so large that
// pairs of experts cannot be counted. State is allocated as layers and phases are
// first seen, a layer and phase: twelve matrices of experts × experts float32, six of
// them where ties are off; precedents, of experts × 768 bytes and 32 kB for each
// of top-k; and two tables of TokenSlots × (12 + 6 × TokenWidth) bytes. A layer has two
// more such tables once token ids are told. For 48 layers × 128 experts, top 8, that is
// 38 MB of matrices, 18 MB of precedents and 61 MB of tables a phase, and 61 MB for
// token ids.
func NewOnline(shape layout.Shape, o OnlineOptions) (*Online, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: online: %w", err)
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := checkPairs("online", shape); err != nil {
		return nil, err
	}
	return &Online{shape: shape, opts: o.withDefaults(shape), layers: make([]onlineLayer, shape.Layers)}, nil
}

// Name is "online".
func (o *Online) Name() string { return "online" }

// onlineLayer is what all sequences share of one layer.
type onlineLayer struct {
	mu     sync.Mutex
	phases [phaseCount]*phaseState // nil until the phase is seen
	common commonState
}

// commonState is counted by token and thus the same for prefill and decode.
type commonState struct {
	use    []float32   // decayed uses by tokens; nil until the layer is seen
	seen   float32     // decayed tokens
	tokens *tokenTable // by token id; nil until a runner tells one
	grams  *tokenTable // by token id and the one before it
}

// phaseState is learned for each phase by itself: in prefill the target is
// what any token of the pass uses.
type phaseState struct {
	version int       // passes observed
	use     []float32 // decayed passes that used the expert
	seen    float32   // decayed passes
	long    longRun
	follow  [sourceCount]pairs
	opening *tokenTable // by the choice of layer 0 as a whole
	pair    *tokenTable // by what pairKey joins
	again   *precedents // by the last pass: what the next one used
	passes  *precedents // by this pass so far
	heads   [headCount]head
	outlook head // see Outlook
}

const (
	phaseDecode = iota
	phasePrefill
	phaseCount
)

// useDecay of the long-run frequency, a pass.
const useDecay = 0.9995

func (o *Online) newPhase(layer int) *phaseState {
	n := o.shape.Experts
	s := &phaseState{use: make([]float32, n), long: newLongRun(n)}
	for i := range s.follow {
		s.follow[i] = newEvidencePairs(n)
	}
	if layer > 0 {
		s.opening = newTokenTable(o.opts.TokenSlots, o.opts.TokenWidth)
		s.pair = newTokenTable(o.opts.TokenSlots, o.opts.TokenWidth)
		s.passes = newPrecedents(n, precedentWidth(o.shape.TopK, n))
	}
	s.again = newPrecedents(n, precedentWidth(o.shape.TopK, n))
	s.outlook = newHead(startOutlook[:], n, 0)
	kinds := [headCount]int{headKeep: sourceAgain + 1, headFar: 0, headSkip: sourceSkip + 1, headNear: sourceNear + 1}
	for i := range s.heads {
		if n > o.opts.MaxTies {
			kinds[i] = 0
		}
		s.heads[i] = newHead(startWeights[:headColumns[i]], n, kinds[i])
	}
	return s
}

// longEvery is how often the long-run frequency is taken anew from the counts, in
// passes, once it is known well: it moves slowly by then.
const longEvery = 8

// takeLong brings the long-run frequency up to date.
func (s *phaseState) takeLong(even float32) {
	if s.long.known && (s.version == s.long.version || s.version > wellKnown && s.version%longEvery != 0) {
		return
	}
	s.long.version, s.long.known = s.version, true
	frequencies(s.long.p, s.use, s.seen, even)
	s.long.derive()
}

// stateLocked returns a layer's shared state, made if need be. The layer's mutex is held.
func (o *Online) stateLocked(layer, phase int) (*commonState, *phaseState) {
	l := &o.layers[layer]
	if l.common.use == nil {
		l.common.use = make([]float32, o.shape.Experts)
	}
	if l.phases[phase] == nil {
		l.phases[phase] = o.newPhase(layer)
	}
	return &l.common, l.phases[phase]
}
