package train

import "outrider/router/learned"

// export puts the weights of the graph into the order of package learned: inputs of a
// unit side by side, the sets' behind the fixed ones.
func (w *weights) export(d learned.Dims) learned.Layer {
	fixed, inputs := fixedInputs(), learned.Inputs()
	l := learned.Layer{
		Hidden: make([]float32, d.Hidden*inputs), Skip: make([]float32, inputs), Output: clone(w.at(weightOutput)),
		Before: clone(w.at(weightBefore)), Again: clone(w.at(weightAgain)),
		Target: transposed(w.at(weightTarget), d.Embedding, d.Shape.Experts),
	}
	copy(l.Skip, w.at(weightSkip))
	l.Skip[fixed], l.Skip[fixed+1] = 1, 1
	for unit := range d.Hidden {
		to := l.Hidden[unit*inputs:][:inputs]
		for i := range fixed {
			to[i] = w.at(weightHidden)[i*d.Hidden+unit]
		}
		to[fixed], to[fixed+1] = w.at(weightHiddenBefore)[unit], w.at(weightHiddenAgain)[unit]
	}
	return l
}

// transposed turns a matrix of rows × columns around.
func transposed(from []float32, rows, columns int) []float32 {
	to := make([]float32, len(from))
	for r := range rows {
		for c := range columns {
			to[c*rows+r] = from[r*columns+c]
		}
	}
	return to
}
