package learned

import "sync"

// blend is how far a layer's network is followed, learned from what came true:
// the log odds are those of the online forecast and weight times what the network
// says otherwise. A network that is worse than an online forecast grown warm fades
// out, one that is timid is followed further.
type blend struct {
	mu sync.Mutex
	// weight starts at 1, the network as it was trained.
	weight float32
	// curvature is the decayed sum of the loss's second derivatives.
	curvature float32
}

const (
	blendMost = 1.5 // most weight
	blendKeep = 0.995
	// blendPrior is curvature that stands for the training: how much must be seen
	// before one pass counts for little.
	blendPrior = 25
	// blendStep is the longest step of a pass: where all forecasts are sure and
	// wrong, the curvature says nothing.
	blendStep = 0.1
	// oddsLimit clamps the network's log odds: beyond it they say no more.
	oddsLimit = 30
	// blendCurvature is more than any layer can have: each expert adds at most a
	// quarter of the square of what odds can differ by.
	blendCurvature = 1e12
)

// opinion is a forecast of one layer's next execution, until it is known what was
// used.
type opinion struct {
	due    bool
	online []float32 // log odds
	other  []float32 // those of the network, less online
}

// mix notes both forecasts and writes the blended log odds over the network's.
func (b *blend) mix(o *opinion, online, odds []float32) {
	b.mu.Lock()
	w := b.weight
	b.mu.Unlock()
	o.due = true
	for e, z := range online {
		d := min(max(odds[e], -oddsLimit), oddsLimit) - z
		o.online[e], o.other[e] = z, d
		odds[e] = z + w*d
	}
}

// learn takes a step of Newton's towards what was used.
func (b *blend) learn(o *opinion, used []bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var slope, curvature float32
	for e, d := range o.other {
		p := sigmoid(o.online[e] + b.weight*d)
		curvature += p * (1 - p) * d * d
		if used[e] {
			p--
		}
		slope += p * d
	}
	b.curvature = blendKeep*b.curvature + curvature
	step := min(max(slope/(b.curvature+blendPrior), -blendStep), blendStep)
	b.weight = min(max(b.weight-step, 0), blendMost)
}
