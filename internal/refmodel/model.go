package refmodel

import (
	"github.com/viterin/vek/vek32"
)

// Model is everything but the routed experts: hyper-parameters, tokenizer and
// dense weights, as float32. It does not change after Load: any number of
// Generators may share it.
type Model struct {
	Config    Config
	Name      string // the model's own name
	Tokenizer *Tokenizer

	embedding  matrix
	outputNorm []float32
	output     matrix // the embedding itself where tied
	blocks     []block
}

// block is the dense part of one transformer block.
type block struct {
	attentionNorm []float32
	queryNorm     []float32 // per head
	keyNorm       []float32
	query         matrix
	key           matrix
	value         matrix
	attention     matrix // from the heads back to the residual stream
	expertNorm    []float32
	router        matrix
}

// DenseBytes is the memory that the dense weights take, in bytes.
func (m *Model) DenseBytes() int64 {
	floats := len(m.embedding.data) + len(m.outputNorm)
	if !m.tied() {
		floats += len(m.output.data)
	}
	for i := range m.blocks {
		b := &m.blocks[i]
		floats += len(b.attentionNorm) + len(b.queryNorm) + len(b.keyNorm) + len(b.expertNorm)
		for _, w := range []matrix{b.query, b.key, b.value, b.attention, b.router} {
			floats += len(w.data)
		}
	}
	return 4 * int64(floats)
}

func (m *Model) tied() bool { return &m.output.data[0] == &m.embedding.data[0] }

// matrix is rows of cols weights each; row r gives output r.
type matrix struct {
	rows, cols int
	data       []float32
}

func (w matrix) row(r int) []float32 { return w.data[r*w.cols : (r+1)*w.cols] }

// apply multiplies n rows of x, each w.cols wide, into n rows of y. Each
// output depends on its own row of x alone, so that a chunk of tokens gives
// exactly what the tokens give one by one.
func (w matrix) apply(y, x []float32) {
	n := len(x) / w.cols
	for r := range w.rows {
		row := w.row(r)
		for t := range n {
			y[t*w.rows+r] = vek32.Dot(row, x[t*w.cols:(t+1)*w.cols])
		}
	}
}
