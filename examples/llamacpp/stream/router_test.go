package stream

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"outrider/examples/llamacpp/ggml"
)

// node is a tensor of a graph, contiguous, with data of its own.
func node(name string, typ int32, dims ...int64) *ggml.Tensor {
	t := &ggml.Tensor{Type: typ, Dims: [4]int64{1, 1, 1, 1}}
	copy(t.Dims[:], dims)
	t.Strides = [4]uint64{4, uint64(4 * t.Dims[0]), uint64(4 * t.Dims[0] * t.Dims[1]), uint64(4 * t.Dims[0] * t.Dims[1] * t.Dims[2])}
	t.Data = unsafe.Pointer(unsafe.SliceData(make([]int32, t.Dims[0]*t.Dims[1]*t.Dims[2]*t.Dims[3])))
	rename(t, name)
	return t
}

func rename(t *ggml.Tensor, name string) {
	at := unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(t), 256)), 64)
	clear(at)
	copy(at[:63], name)
}

// view are the first k of the rows of a tensor.
func view(t *ggml.Tensor, name string, k int64) *ggml.Tensor {
	v := *t
	v.Dims[0], v.ViewOf, v.Sources = k, t, [10]*ggml.Tensor{t}
	rename(&v, name)
	return &v
}

// routerGraph is what llama.cpp makes of a layer's router: the leaf and what it sees, the
// logits, the probabilities, with a bias that moves the choice only, the sorted ids of all
// experts, the first k of them, and the gate weights that are taken by these.
type routerGraph struct{ weights, ids, top, probs, leaf, hidden *ggml.Tensor }

func makeRouter(block string, experts, k, tokens int64) routerGraph {
	g := routerGraph{leaf: node("blk."+block+".ffn_gate_inp.weight", ggml.TypeF32, 16, experts), hidden: node("ffn_norm-"+block, ggml.TypeF32, 16, tokens)}
	logits := node("ffn_moe_logits-"+block, ggml.TypeF32, experts, tokens)
	logits.Sources[0], logits.Sources[1] = g.leaf, g.hidden
	g.probs = node("ffn_moe_probs-"+block, ggml.TypeF32, experts, tokens)
	g.probs.Sources[0] = logits
	biased := node("ffn_moe_probs_biased-"+block, ggml.TypeF32, experts, tokens)
	biased.Sources[0] = g.probs
	g.ids = node("ffn_moe_argsort-"+block, ggml.TypeI32, experts, tokens)
	g.ids.Sources[0] = biased
	for i := range tokens {
		for e := range experts { // token i prefers i, i+1, …
			g.ids.Int32s(i)[e] = int32((i + e) % experts)
			g.probs.Float32s(i)[(i+e)%experts] = float32(math.Pow(2, -float64(e+1)))
		}
	}
	g.top = view(g.ids, "ffn_moe_topk-"+block, k)
	taken := node("ffn_moe_weights-"+block, ggml.TypeF32, 1, k, tokens)
	taken.Sources[0], taken.Sources[1] = g.probs, g.top
	g.weights = taken
	return g
}

func TestReadRouting(t *testing.T) {
	g := makeRouter("13", 8, 2, 5)
	r, err := readRouting(g.weights, 8)
	if err != nil {
		t.Fatal(err)
	}
	if r.block != 13 || r.chosen != g.top || r.probs != g.probs || r.hidden != g.hidden {
		t.Errorf("got %+v, want block 13 with choice, probabilities and state", r)
	}
	// Rows of the choice are as far apart as there are experts.
	var s scratch
	s.group(all(prompt(0, make([]int32, 5))), 1)
	if err := s.read(r, s.all, 8); err != nil {
		t.Fatal(err)
	}
	for i, c := range s.ofToken {
		if want := []int32{int32(i % 8), int32((i + 1) % 8)}; !slices.Equal(c.Experts, want) {
			t.Errorf("token %d: got experts %v, want %v", i, c.Experts, want)
		}
		if want := []float32{2. / 3, 1. / 3}; !slices.Equal(c.Weights, want) {
			t.Errorf("token %d: got weights %v, want %v", i, c.Weights, want)
		}
	}
	if s.distinct != 6 {
		t.Errorf("got %d distinct experts, want 6", s.distinct)
	}
	// Only the first three are needed where the others' logits are not wanted.
	if err := s.read(r, s.all[2:4], 8); err != nil {
		t.Fatal(err)
	}
	if s.ofToken[0].Experts != nil || s.ofToken[4].Experts != nil || !slices.Equal(s.ofToken[3].Experts, []int32{1, 2}) {
		t.Errorf("rows of tokens 2 and 3: got %v", s.ofToken)
	}
}

// What is not understood is an error; what only a forecast would gain from is left out.
func TestReadRoutingOfOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*routerGraph)
		word   string // of the error
		probs  bool
		hidden bool
	}{
		{"another node", func(g *routerGraph) { rename(g.weights, "ffn_moe_topk-0") }, `node "ffn_moe_topk-0" holds no gate weights`, false, false},
		{"no number", func(g *routerGraph) { rename(g.weights, "ffn_moe_weights-") }, "holds no gate weights", false, false},
		{"a copy", func(g *routerGraph) { rename(g.weights, "ffn_moe_weights-0 (copy)") }, "holds no gate weights", false, false},
		{"no choice", func(g *routerGraph) { g.weights.Sources[1] = nil }, "block 0: the router's choice is not understood: there is none", false, false},
		{"float ids", func(g *routerGraph) { g.top.Type = ggml.TypeF32 }, `"ffn_moe_topk-0" has type 0`, false, false},
		{"no memory", func(g *routerGraph) { g.top.Data = nil }, "not understood", false, false},
		{"more than experts", func(g *routerGraph) { g.top.Dims[0] = 9 }, "dimensions [9 5 1 1]", false, false},
		{"nothing chosen", func(g *routerGraph) { g.top.Dims[0] = 0 }, "not understood", false, false},
		{"three dimensions", func(g *routerGraph) { g.top.Dims[2] = 2 }, "not understood", false, false},
		{"wide numbers", func(g *routerGraph) { g.top.Strides[0] = 8 }, "strides [8", false, false},
		{"overlapping rows", func(g *routerGraph) { g.top.Strides[1] = 4 }, "strides [4 4", false, false},
		{"probabilities under another name", func(g *routerGraph) { rename(g.probs, "ffn_moe_probs-1") }, "", false, true},
		{"probabilities in groups", func(g *routerGraph) { g.probs.Dims = [4]int64{4, 2, 5, 1} }, "", false, true},
		{"a router of another name", func(g *routerGraph) { rename(g.leaf, "blk.0.router.weight") }, "", true, false},
		{"a state of another width", func(g *routerGraph) { g.hidden.Dims[0] = 15 }, "", true, false},
		{"no state", func(g *routerGraph) { g.probs.Sources[0].Sources[1] = nil }, "", true, false},
		{"a chain without end", func(g *routerGraph) { g.probs.Sources[0] = g.ids }, "", true, false},
		{"nothing behind the choice", func(g *routerGraph) { g.top.Sources[0] = nil }, "", false, false},
	} {
		g := makeRouter("0", 8, 2, 5)
		c.change(&g)
		r, err := readRouting(g.weights, 8)
		if c.word != "" {
			if err == nil || !strings.Contains(err.Error(), c.word) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.word)
			}
			continue
		}
		if err != nil || r.chosen != g.top || (r.probs != nil) != c.probs || (r.hidden != nil) != c.hidden {
			t.Errorf("%s: got %+v, %v; want probabilities %v, state %v", c.name, r, err, c.probs, c.hidden)
		}
	}
}

func TestChoiceOutOfRange(t *testing.T) {
	for _, bad := range []int32{-1, 8, math.MaxInt32, math.MinInt32} {
		g := makeRouter("3", 8, 2, 2)
		g.top.Int32s(1)[1] = bad
		r, err := readRouting(g.weights, 8)
		if err != nil {
			t.Fatal(err)
		}
		var s scratch
		s.group(all(prompt(0, make([]int32, 2))), 1)
		if err := s.read(r, s.all, 8); err == nil || !strings.Contains(err.Error(), "block 3: the router chose expert") {
			t.Errorf("expert %d: got %v, want an error", bad, err)
		}
	}
}

func TestGates(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name  string
		probs []float32
		ids   []int32
		want  []float32
	}{
		{"softmax", []float32{0.5, 0.125, 0.25, 0.125}, []int32{0, 2}, []float32{2. / 3, 1. / 3}},
		{"one", []float32{0.5, 0.25, 0.25}, []int32{1}, []float32{1}},
		{"sigmoid", []float32{0.75, 0.25, 1}, []int32{2, 0, 1}, []float32{0.5, 0.375, 0.125}},
		{"logits", []float32{-1, -1, 2}, []int32{0, 1}, []float32{0.5, 0.5}},
		{"large logits", []float32{-1e4, 1e4}, []int32{1, 0}, []float32{1, 0}},
		{"zeros", []float32{0, 0}, []int32{0, 1}, []float32{0, 0}},
		{"no numbers", []float32{nan, 1}, []int32{0, 1}, []float32{0, 0}},
	} {
		got := gates([]float32{9}, c.probs, c.ids)
		if !slices.Equal(got, append([]float32{9}, c.want...)) {
			t.Errorf("%s: got %v, want 9 and %v", c.name, got, c.want)
		}
	}
}

// Tokens that need more experts than fit are cut where they would; a token at least.
func TestPrefix(t *testing.T) {
	g := makeRouter("0", 8, 2, 5) // 0 1, 1 2, 2 3, 3 4, 4 5
	r, err := readRouting(g.weights, 8)
	if err != nil {
		t.Fatal(err)
	}
	var s scratch
	s.group(all(prompt(0, make([]int32, 5))), 1)
	if err := s.read(r, s.all, 8); err != nil {
		t.Fatal(err)
	}
	for most, want := range []int{1, 1, 1, 2, 3, 4, 5, 5} {
		if got := s.prefix(most, 8); got != want {
			t.Errorf("%d experts fit: got %d tokens, want %d", most, got, want)
		}
	}
}

// The numbers of slots go where those of experts were, row by row, and nowhere else.
func TestRenumber(t *testing.T) {
	g := makeRouter("0", 8, 2, 3)
	before := slices.Clone(g.ids.Int32s(0)[:8:8])
	s := scratch{slot: []int32{70, 71, 72, 73, 74, 75, 76, 77}}
	s.renumber(g.top)
	for i := range int64(3) {
		row := g.ids.Int32s(i)
		for e := range row {
			want := int32((i + int64(e)) % 8)
			if e < 2 {
				want += 70
			}
			if row[e] != want {
				t.Errorf("row %d: got %v of %v, want the first two as slots", i, row, before)
				break
			}
		}
	}
}
