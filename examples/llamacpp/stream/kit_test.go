package stream

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/experts"
	"outrider/runtime"
)

// threads that compute: more would contend with other tests of this machine.
const threads = 2

// engine computes tokens and tells of those with logits.
type engine func(items []llama.Item, each func(i int, logits []float32) error) error

// text is what an engine made: tokens, and the logits that each was chosen from.
type text struct {
	tokens []int32
	logits [][]float32
}

func lib(t testing.TB) *llama.Lib {
	t.Helper()
	l, err := llama.Load(libtest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// stockModel is a model of llama.cpp alone, closed with the test.
func stockModel(t testing.TB, path string, mapped bool) *llama.Model {
	t.Helper()
	m, err := lib(t).Open(path, mapped)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, m.Close) })
	return m
}

// stock decodes with llama.cpp alone, batch by batch.
func stock(t testing.TB, m *llama.Model, o llama.ContextOptions) (*llama.Context, engine) {
	t.Helper()
	o.Threads = max(o.Threads, 1)
	c, err := m.NewContext(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, c.Close) })
	return c, func(items []llama.Item, each func(int, []float32) error) error {
		for part := range slices.Chunk(items, c.Batch) {
			if err := decodePart(c, part, each); err != nil {
				return err
			}
		}
		return nil
	}
}

func decodePart(c *llama.Context, items []llama.Item, each func(int, []float32) error) error {
	if err := c.Decode(items); err != nil {
		return err
	}
	for i, it := range items {
		if it.Logits {
			logits, err := c.Logits(i)
			if err != nil {
				return err
			}
			if err := each(i, logits); err != nil {
				return err
			}
		}
	}
	return nil
}

// openModel opens a model with a share of its experts' memory; 0 is the floor. Memory of
// experts that are dropped is overwritten: a kernel that read it would be seen.
func openModel(t testing.TB, o Options, share float64) *Model {
	t.Helper()
	o.Runtime.Poison, o.Runtime.FixedBudget = true, true
	least := floor(t, o)
	o.Budget = func(all int64) int64 {
		if share >= 1 {
			return all
		}
		return max(least, int64(share*float64(all)))
	}
	m, err := Open(t.Context(), lib(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, m.Close) })
	return m
}

var needs = regexp.MustCompile(`needs (\d+);`)

// floor is the least budget, as the error for a smaller one tells it.
func floor(t testing.TB, o Options) int64 {
	t.Helper()
	o.Budget = func(int64) int64 { return 1 }
	_, err := Open(t.Context(), lib(t), o)
	if !errors.Is(err, experts.ErrBelowFloor) {
		t.Fatalf("a budget of one byte: got %v, want ErrBelowFloor", err)
	}
	n := needs.FindStringSubmatch(err.Error())
	if n == nil {
		t.Fatalf("the error does not tell what is needed: %v", err)
	}
	bytes, _ := strconv.ParseInt(n[1], 10, 64)
	return bytes
}

// newDecoder makes a decoder that is closed with the test.
func newDecoder(t testing.TB, m *Model, o DecoderOptions) (*Decoder, engine) {
	t.Helper()
	o.Threads = max(o.Threads, 1)
	d, err := m.NewDecoder(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, d.Close) })
	return d, func(items []llama.Item, each func(int, []float32) error) error {
		return d.Decode(context.Background(), items, each)
	}
}

func closeIt(t testing.TB, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// prompt are the items of a prompt of one sequence, logits of the last token wanted.
func prompt(sequence int32, tokens []int32) []llama.Item {
	items := make([]llama.Item, len(tokens))
	for i, token := range tokens {
		items[i] = llama.Item{Token: token, Position: int32(i), Sequence: sequence, Logits: i == len(tokens)-1}
	}
	return items
}

// oneByOne gives an engine one token at a time.
func oneByOne(e engine) engine {
	return func(items []llama.Item, each func(int, []float32) error) error {
		for i := range items {
			err := e(items[i:i+1], func(_ int, logits []float32) error { return each(i, logits) })
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// greedy goes on from a prompt by n tokens, in sequence 0.
func greedy(t testing.TB, e engine, tokens []int32, n int) (out text) {
	t.Helper()
	items := prompt(0, tokens)
	for range n {
		err := e(items, func(_ int, logits []float32) error {
			out.logits = append(out.logits, slices.Clone(logits))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		next := likeliest(out.logits[len(out.logits)-1])
		out.tokens = append(out.tokens, next)
		items = []llama.Item{{Token: next, Position: int32(len(tokens) + len(out.tokens) - 1), Logits: true}}
	}
	return out
}

func likeliest(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// difference says where two texts differ first, "" if they are equal bit for bit.
func (a text) difference(b text) string {
	if len(a.logits) != len(b.logits) {
		return "lengths " + strconv.Itoa(len(a.logits)) + " and " + strconv.Itoa(len(b.logits))
	}
	for i := range a.logits {
		for j, v := range a.logits[i] {
			if v != b.logits[i][j] {
				return "token " + strconv.Itoa(i) + ", logit " + strconv.Itoa(j) + ": " + strconv.FormatFloat(float64(v), 'g', -1, 32) + " and " + strconv.FormatFloat(float64(b.logits[i][j]), 'g', -1, 32)
			}
		}
		if a.tokens[i] != b.tokens[i] {
			return "token " + strconv.Itoa(i) + ": equal logits, other choice"
		}
	}
	return ""
}

// wellKept checks what the runtime says of its memory.
func wellKept(t testing.TB, name string, rt *runtime.Runtime) runtime.Stats {
	t.Helper()
	st := rt.Stats()
	if st.Memory.Peak > st.Memory.Budget || st.Memory.ReleasedTwice > 0 || st.Memory.Leases > 0 {
		t.Errorf("%s: peak %d of %d bytes, %d leases left, %d released twice", name, st.Memory.Peak, st.Memory.Budget, st.Memory.Leases, st.Memory.ReleasedTwice)
	}
	return st
}
