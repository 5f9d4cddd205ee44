package router

import (
	"fmt"
	"sync"

	"outrider/layout"
)

// Matrix forecasts by the activation matrices of past sequences, after
// MoE-Infinity (Xue et al., arXiv 2401.14361): how many tokens of a sequence each
// layer sent to each expert. The matrix most similar to what a sequence does is
// looked up in a bounded collection, and its rows say what the layers ahead will
// use. From the paper and its published program are: the matrices, the
// collection, and similarity as the mean over layers of the cosine of their rows.
//
// Where those leave it open, or suppose that the end of a sequence is known, it is
// done so here:
//
//   - A matrix covers at most a window of tokens of one sequence, and enters the
//     collection while the sequence runs: after 8 tokens, then each time their
//     number has doubled, in the same place, up to the window; then the next window
//     begins. What a sequence does in a last part of fewer than 8 tokens is lost.
//   - When the collection is full, the matrix that is most similar to the sequence
//     gives way: what is alike is held once.
//   - Similarity is that to the layers of the pass under way, and to a little the
//     sequence as a whole, which decides before the first layer. A sequence is not
//     compared with the matrix that it is writing, and one that enters in the middle
//     of a pass is compared with the layers after that only.
//   - The row found counts as 8 tokens of the sequence itself, on top of the
//     sequence's own decayed counts and of one token of all experts alike. That,
//     as shares of top-k uses a token, is the probability; for passes of several
//     tokens, that any of them uses the expert.
//
// Prefill and decode share the matrices, as they count tokens and not passes.
// Scores of a layer sum to about top-k for one token. The next pass is taken to be
// as wide as this one.
//
// All histories share the collection. It takes 4 bytes × layers × experts ×
// Capacity (3 MB for 48 layers of 128 experts); a history takes 8 bytes × layers ×
// experts + 4 × layers × Capacity (72 kB).
//
// Begin costs layers × Capacity operations, Observe experts + Capacity for each
// expert used, Score experts. To that comes, in each history, layers × experts
// for every matrix that entered since.
type Matrix struct {
	shape  layout.Shape
	window int

	mu   sync.RWMutex // read while comparing, written while a matrix enters
	past matrices
	last uint64 // id of the latest history
}

var _ Predictor = (*Matrix)(nil)

// MatrixOptions tune a Matrix. The zero value is the default.
type MatrixOptions struct {
	// Capacity is the number of matrices kept; 0 means 120.
	Capacity int
	// Window is the most tokens of a sequence that one matrix covers; 0 means 32.
	// With 1 each token leaves a matrix of its own. That is no longer the paper's
	// method, but forecast much better on the traces at hand: recall of the next
	// layer was 0.65 instead of 0.51 on gpt-oss-20b.
	Window int
}

const (
	matrixCapacity = 120
	matrixWindow   = 32
	// firstEntry is how many tokens a matrix holds at least before it enters.
	firstEntry = 8

	maxMatrixWindow = 1 << 20
	// maxMatrixEntries bounds the collection, so that the header of a damaged trace
	// cannot ask for all the memory there is: 128 MiB.
	maxMatrixEntries = 1 << 25
)

// NewMatrix makes a predictor that has seen nothing. It fails on a shape that is
// not valid, with ErrOption on options out of range, and with ErrShape if the
// collection would take over 128 MiB.
func NewMatrix(shape layout.Shape, o MatrixOptions) (*Matrix, error) {
	if err := shape.Validate(); err != nil {
		return nil, fmt.Errorf("router: matrix: %w", err)
	}
	if o.Capacity == 0 {
		o.Capacity = matrixCapacity
	}
	if o.Window == 0 {
		o.Window = matrixWindow
	}
	switch {
	case o.Capacity < 0:
		return nil, fmt.Errorf("router: matrix: %w: capacity is %d, want 1 or more, or 0 for %d", ErrOption, o.Capacity, matrixCapacity)
	case o.Window < 0 || o.Window > maxMatrixWindow:
		return nil, fmt.Errorf("router: matrix: %w: window is %d, want 1 to %d, or 0 for %d", ErrOption, o.Window, maxMatrixWindow, matrixWindow)
	case o.Capacity > maxMatrixEntries/shape.Count():
		return nil, fmt.Errorf("router: matrix: %w: %d matrices of %d layers × %d experts are too many: lower the capacity to %d", ErrShape,
			o.Capacity, shape.Layers, shape.Experts, maxMatrixEntries/shape.Count())
	}
	return &Matrix{shape: shape, window: o.Window, past: newMatrices(shape, o.Capacity)}, nil
}

// Name is "matrix".
func (m *Matrix) Name() string { return "matrix" }

// NewHistory starts a sequence.
func (m *Matrix) NewHistory() History {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past.open()
	m.last++
	return newMatrixHistory(m, m.last)
}
