package train

import (
	"context"
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"

	"outrider/router/learned"
)

// fit is a training under way.
type fit struct {
	name    string
	dims    learned.Dims
	options Options
	random  *rand.Rand
	spread  spread
	network *network
	layers  []*weights
	train   *examples
	held    heldOut
	report  *Report
}

// sharedWeights are those that all layers have in common. With weights of each
// layer's own the held-out loss of recorded traces was hardly lower, or higher.
var sharedWeights = []int{weightHidden, weightHiddenBefore, weightHiddenAgain, weightOutput, weightSkip}

// ownWeights are those that each layer has for itself.
var ownWeights = []int{weightBefore, weightAgain, weightTarget}

// embeddingDecay is what an embedding loses in a step, times the rate. With less, a
// layer's few thousand examples are learned by heart, and the network then harms
// the forecast of an online predictor that is warm.
const embeddingDecay = 12

// run trains until the held-out loss no longer falls, and returns the best.
func (f *fit) run(ctx context.Context) (*learned.Model, error) {
	f.begin()
	best, err := f.model()
	if err != nil {
		return nil, err
	}
	loss := f.held.loss(best)
	f.report.Start = loss
	solvers := newSolvers(len(f.layers))
	stale := 0
	for n := 1; n <= f.options.Epochs && stale < f.options.Patience; n++ {
		solvers.setRate(f.options.rateOf(n))
		trained, err := f.epoch(ctx, solvers)
		if err != nil {
			return nil, err
		}
		m, err := f.model()
		if err != nil {
			return nil, err
		}
		held := f.held.loss(m)
		f.report.Epochs = append(f.report.Epochs, Epoch{Epoch: n, TrainLoss: trained, HeldOutLoss: held})
		if stale++; held < loss {
			best, loss, f.report.Best, stale = m, held, n, 0
		}
	}
	f.report.Comparisons = f.held.compare(best)
	return best, nil
}

// begin makes the weights of the start, those that are shared one and the same.
func (f *fit) begin() {
	f.layers = make([]*weights, f.dims.Shape.Layers)
	for l := range f.layers {
		f.layers[l] = newWeights(f.dims, &f.spread, f.random)
		for _, i := range sharedWeights {
			f.layers[l][i] = f.layers[0][i]
		}
	}
}

// epoch learns from every example once, in batches of one layer and random order.
// A layer's last batch is filled up from its first ones.
func (f *fit) epoch(ctx context.Context, s *solvers) (loss float64, err error) {
	batches := f.batches()
	for i, batch := range batches {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		layer := int(f.train.layers[batch[0]])
		f.network.fill(f.train, &f.spread, batch)
		stepLoss, err := f.network.step(f.layers[layer])
		if err != nil {
			return 0, err
		}
		if err := s.step(f, layer); err != nil {
			return 0, err
		}
		loss += float64(stepLoss)
		f.progress(i+1, len(batches))
	}
	return loss / float64(len(batches)), nil
}

func (f *fit) batches() [][]int {
	by := make([][]int, f.dims.Shape.Layers)
	for _, i := range f.random.Perm(f.train.len()) {
		l := f.train.layers[i]
		by[l] = append(by[l], i)
	}
	var all [][]int
	for _, examples := range by {
		for from := 0; from < len(examples); from += f.options.Batch {
			batch := make([]int, f.options.Batch)
			for k := range batch {
				batch[k] = examples[(from+k)%len(examples)]
			}
			all = append(all, batch)
		}
	}
	f.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func (f *fit) progress(done, total int) {
	p := Progress{Stage: Learning, Done: int64(done * f.options.Batch), Total: int64(total * f.options.Batch)}
	if n := len(f.report.Epochs); n > 0 {
		last := f.report.Epochs[n-1]
		p.Epoch = &last
	}
	f.options.Progress(p)
}

// solvers hold Adam's memory: of what is shared, and of each layer by itself.
type solvers struct {
	rate   float64
	shared *gorgonia.AdamSolver
	layers []*gorgonia.AdamSolver
}

func newSolvers(layers int) *solvers {
	s := &solvers{shared: gorgonia.NewAdamSolver(), layers: make([]*gorgonia.AdamSolver, layers)}
	for l := range s.layers {
		s.layers[l] = gorgonia.NewAdamSolver()
	}
	return s
}

func (s *solvers) setRate(rate float64) {
	s.rate = rate
	set := gorgonia.WithLearnRate(rate)
	set(s.shared)
	for _, solver := range s.layers {
		set(solver)
	}
}

// step changes the weights of a layer, and the shared ones, by the gradients in
// the network.
func (s *solvers) step(f *fit, layer int) (err error) {
	defer recovered(&err)
	if err := s.shared.Step(f.graded(layer, sharedWeights)); err != nil {
		return fmt.Errorf("train: gorgonia: %w", err)
	}
	keep := float32(max(1-embeddingDecay*s.rate, 0))
	for _, i := range ownWeights {
		for k := range f.layers[layer].at(i) {
			f.layers[layer].at(i)[k] *= keep
		}
	}
	if err := s.layers[layer].Step(f.graded(layer, ownWeights)); err != nil {
		return fmt.Errorf("train: gorgonia: %w", err)
	}
	return nil
}

func (f *fit) graded(layer int, which []int) []gorgonia.ValueGrad {
	all := make([]gorgonia.ValueGrad, len(which))
	for k, i := range which {
		all[k] = graded{weight: f.layers[layer][i], node: f.network.nodes[i]}
	}
	return all
}

// model makes what ships of the weights as they are.
func (f *fit) model() (*learned.Model, error) {
	p := learned.Parameters{Centre: clone(f.spread.centre), Scale: clone(f.spread.scale), Layers: make([]learned.Layer, len(f.layers))}
	for l, w := range f.layers {
		p.Layers[l] = w.export(f.dims)
	}
	return learned.NewModel(f.name, f.dims, p)
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }
