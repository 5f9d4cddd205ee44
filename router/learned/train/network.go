package train

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"outrider/router"
	"outrider/router/learned"
)

// network is the Gorgonia graph of one layer and a batch of examples. Weights of
// all layers are held outside it and lent to it for a step.
type network struct {
	dims  learned.Dims
	batch int

	inputs, truth *gorgonia.Node // [batch × experts][fixed], [batch × experts][1]
	before, again *gorgonia.Node // [batch][experts]: 1 over the size for those in the set
	nodes         []*gorgonia.Node
	odds, loss    gorgonia.Value
	machine       gorgonia.VM
	ran           bool
}

// The weights of the graph, in the order of network.nodes.
const (
	weightHidden       = iota // [fixed][hidden]
	weightHiddenBefore        // [1][hidden]
	weightHiddenAgain         // [1][hidden]
	weightOutput              // [hidden][1]
	weightSkip                // [fixed][1]
	weightBefore              // [experts][embedding]
	weightAgain               // [experts][embedding]
	weightTarget              // [embedding][experts]
	weightCount
)

// fixedInputs are those that do not come from embeddings: columns, sharpness and horizons.
func fixedInputs() int { return router.FeatureColumns() + 1 + learned.Horizons }

func weightShapes(d learned.Dims) [weightCount]tensor.Shape {
	fixed, n := fixedInputs(), d.Shape.Experts
	return [weightCount]tensor.Shape{
		weightHidden: {fixed, d.Hidden}, weightHiddenBefore: {1, d.Hidden}, weightHiddenAgain: {1, d.Hidden},
		weightOutput: {d.Hidden, 1}, weightSkip: {fixed, 1},
		weightBefore: {n, d.Embedding}, weightAgain: {n, d.Embedding}, weightTarget: {d.Embedding, n},
	}
}

// newNetwork builds the graph for batches of a size. Close frees it.
func newNetwork(d learned.Dims, batch int) (n *network, err error) {
	defer recovered(&err)
	n = &network{dims: d, batch: batch}
	g := gorgonia.NewGraph()
	matrix := func(name string, shape tensor.Shape) *gorgonia.Node {
		return gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName(name), gorgonia.WithShape(shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float32))))
	}
	experts := d.Shape.Experts
	rows := batch * experts
	n.inputs, n.truth = matrix("inputs", tensor.Shape{rows, fixedInputs()}), matrix("truth", tensor.Shape{rows, 1})
	n.before, n.again = matrix("before", tensor.Shape{batch, experts}), matrix("again", tensor.Shape{batch, experts})
	for i, shape := range weightShapes(d) {
		n.nodes = append(n.nodes, matrix(fmt.Sprint("weight", i), shape))
	}
	odds, loss := n.connect(rows)
	gorgonia.Read(odds, &n.odds)
	gorgonia.Read(loss, &n.loss)
	if _, err := gorgonia.Grad(loss, n.nodes...); err != nil {
		return nil, fmt.Errorf("train: gradients: %w", err)
	}
	n.machine = gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(n.nodes...))
	return n, nil
}

// connect writes down the network of package learned, and the mean log loss.
func (n *network) connect(rows int) (odds, loss *gorgonia.Node) {
	w, must, mul, add := n.nodes, gorgonia.Must, gorgonia.Mul, gorgonia.Add
	compare := func(sets, embeddings *gorgonia.Node) *gorgonia.Node {
		products := must(mul(must(mul(sets, embeddings)), w[weightTarget]))
		return must(gorgonia.Reshape(products, tensor.Shape{rows, 1}))
	}
	before, again := compare(n.before, w[weightBefore]), compare(n.again, w[weightAgain])
	hidden := must(mul(n.inputs, w[weightHidden]))
	hidden = must(add(hidden, must(mul(before, w[weightHiddenBefore]))))
	hidden = must(add(hidden, must(mul(again, w[weightHiddenAgain]))))
	odds = must(mul(must(gorgonia.Rectify(hidden)), w[weightOutput]))
	odds = must(add(odds, must(mul(n.inputs, w[weightSkip]))))
	odds = must(add(must(add(odds, before)), again))
	// The log loss of odds z for truth y is log(1 + exp z) - y·z.
	loss = must(gorgonia.Sub(must(gorgonia.Softplus(odds)), must(gorgonia.HadamardProd(n.truth, odds))))
	return odds, must(gorgonia.Mean(loss))
}

// recovered turns a panic of Gorgonia into an error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("train: gorgonia: %v", r)
	}
}

func (n *network) close() error { return n.machine.Close() }

// numbers are a node's own.
func numbers(node *gorgonia.Node) []float32 { return node.Value().Data().([]float32) }

// fill makes the batch of some examples of one layer.
func (n *network) fill(x *examples, s *spread, batch []int) {
	experts, fixed, columns := n.dims.Shape.Experts, fixedInputs(), router.FeatureColumns()
	inputs, truth, before, again := numbers(n.inputs), numbers(n.truth), numbers(n.before), numbers(n.again)
	clear(truth)
	clear(before)
	clear(again)
	for b, i := range batch {
		e := x.at(i)
		rows := inputs[b*experts*fixed:][:experts*fixed]
		sharp := e.sharpness(experts)
		for c := range columns + 1 {
			for k := range experts {
				v := sharp
				if c < columns {
					v = e.columns[c*experts+k]
				}
				rows[k*fixed+c] = s.standard(c, v)
			}
		}
		for k := range experts {
			horizon := rows[k*fixed+columns+1:][:learned.Horizons]
			clear(horizon)
			horizon[e.view.Horizon] = 1
		}
		for _, k := range e.used {
			truth[b*experts+int(k)] = 1
		}
		share(before[b*experts:], e.view.Before)
		share(again[b*experts:], e.view.Again)
	}
}

// standard is a value of a column as the network sees it.
func (s *spread) standard(column int, v float32) float32 {
	if !s.active[column] {
		return 0
	}
	return (v - s.centre[column]) / s.scale[column]
}

// share gives each of a set the same part of 1.
func share(dst []float32, set []int32) {
	for _, e := range set {
		dst[e] = 1 / float32(len(set))
	}
}

// step runs the batch over weights, which are copied in, and returns its mean log
// loss. The gradients are then in the nodes.
func (n *network) step(w *weights) (loss float32, err error) {
	defer recovered(&err)
	for i, node := range n.nodes {
		copy(numbers(node), w.at(i))
		if !n.ran {
			continue // no gradient yet
		}
		grad, err := node.Grad()
		if err != nil {
			return 0, fmt.Errorf("train: gorgonia: %w", err)
		}
		clear(grad.Data().([]float32)) // a run adds to it
	}
	n.machine.Reset()
	n.ran = true
	if err := n.machine.RunAll(); err != nil {
		return 0, fmt.Errorf("train: gorgonia: %w", err)
	}
	return n.loss.Data().(float32), nil
}

// weights are those of one layer; some are the same for all.
type weights [weightCount]*tensor.Dense

func (w *weights) at(i int) []float32 { return w[i].Data().([]float32) }

// graded is a weight with the gradient that the graph found for it.
type graded struct {
	weight *tensor.Dense
	node   *gorgonia.Node
}

// Value is what the solver changes.
func (g graded) Value() gorgonia.Value { return g.weight }

// Grad is the gradient of the latest step.
func (g graded) Grad() (gorgonia.Value, error) { return g.node.Grad() }

// newWeights starts a layer with the forecast of the online predictor: what leads to
// another one ends in weights of zero, and begins in random ones to learn from.
func newWeights(d learned.Dims, s *spread, random *rand.Rand) *weights {
	var w weights
	for i, shape := range weightShapes(d) {
		w[i] = tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float32))
	}
	draw := func(i int, size float64) {
		for k := range w.at(i) {
			w.at(i)[k] = float32(random.NormFloat64() * size)
		}
	}
	draw(weightHidden, 1/math.Sqrt(float64(fixedInputs())))
	draw(weightHiddenBefore, 0.1)
	draw(weightHiddenAgain, 0.1)
	draw(weightBefore, 0.1)
	draw(weightAgain, 0.1)
	hidden, skip := w.at(weightHidden), w.at(weightSkip)
	for c, active := range s.active {
		if !active {
			clear(hidden[c*d.Hidden:][:d.Hidden])
		}
	}
	odds := router.FeatureColumns() - 1
	skip[odds] = s.scale[odds]
	for h := range learned.Horizons {
		skip[odds+2+h] = s.centre[odds]
	}
	return &w
}
