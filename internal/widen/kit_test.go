package widen

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outrider/internal/memfs"
	"outrider/layout/gguf"
)

// sizes of the small models of this package's tests.
var sizes = map[byte]int64{'H': 6, 'F': 5, 'D': 7, 'S': 4, 'A': 6, 'K': 2, 'V': 9, 'E': 3}

// model is a small random F32 model. A tensor's dimensions are written as letters,
// fastest first: H the stream, F, D and S the inner widths of routed, dense and shared experts,
// A and K queries and keys, V the vocabulary, E the experts, a number itself.
// "2F" is two parts of F; "/" before the first dimension says that a wider model
// divides by what repeats it.
type model struct {
	architecture string
	meta         map[string]any    // below the architecture's prefix
	tensors      map[string]string // name to dimensions
}

// dim is one dimension of a tensor as the tests write it.
type dim struct {
	letter byte // 0 for a plain number
	parts  int64
	size   int64
}

func parseDims(t testing.TB, text string) (dims []dim, divided bool) {
	t.Helper()
	text, divided = strings.CutPrefix(text, "/")
	for word := range strings.FieldsSeq(text) {
		letter := word[len(word)-1]
		size, lettered := sizes[letter]
		if lettered {
			word = word[:len(word)-1]
		} else {
			letter, size = 0, 1
		}
		parts := int64(1)
		if word != "" {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			parts = n
		}
		if !lettered {
			dims = append(dims, dim{0, 1, parts})
			continue
		}
		dims = append(dims, dim{letter, parts, parts * size})
	}
	return dims, divided
}

// baseMeta is what every model says.
func baseMeta() map[string]any {
	return map[string]any{
		"embedding_length": uint32(sizes['H']), "attention.head_count": uint32(3), "attention.head_count_kv": uint32(1),
		"expert_count": uint32(sizes['E']), "expert_used_count": uint32(2), "feed_forward_length": uint32(sizes['D']),
	}
}

func (m model) writer(t testing.TB) *gguf.Writer {
	t.Helper()
	w := &gguf.Writer{}
	w.Set("general.architecture", m.architecture)
	meta := baseMeta()
	for key, value := range m.meta {
		meta[key] = value
	}
	for _, key := range slices.Sorted(keysOf(meta)) {
		if meta[key] != nil {
			w.Set(m.architecture+"."+key, meta[key])
		}
	}
	random := rand.New(rand.NewPCG(7, 8))
	for _, name := range slices.Sorted(keysOf(m.tensors)) {
		var shape []int64
		n := int64(1)
		dims, _ := parseDims(t, m.tensors[name])
		for _, d := range dims {
			shape, n = append(shape, d.size), n*d.size
		}
		data := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(random.Float32()-0.5))
		}
		w.TensorBytes(name, gguf.F32, shape, data)
	}
	return w
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// inMemory is a file system with the model as "small.gguf".
func inMemory(t testing.TB, w *gguf.Writer) *memfs.ReadOnly {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return &memfs.ReadOnly{Files: map[string][]byte{"small.gguf": b}}
}

// enlarge widens "small.gguf" into "wide.gguf" beside it, and opens both.
func enlarge(t testing.TB, fsys *memfs.ReadOnly, o Options) (plan *Plan, small, wide *gguf.File) {
	t.Helper()
	plan, err := New(fsys, "small.gguf", o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	report, err := plan.Write(t.Context(), &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := int64(out.Len()); report.Bytes != n || n > plan.HeaderBytes+plan.TensorBytes || n < plan.TensorBytes {
		t.Errorf("got %d bytes, reported %d, planned %d to %d", n, report.Bytes, plan.TensorBytes, plan.HeaderBytes+plan.TensorBytes)
	}
	fsys.Files["wide.gguf"] = out.Bytes()
	if small, err = gguf.Open(fsys, "small.gguf"); err != nil {
		t.Fatal(err)
	}
	if wide, err = gguf.Open(fsys, "wide.gguf"); err != nil {
		t.Fatal(err)
	}
	return plan, small, wide
}

// floats reads an F32 tensor.
func floats(t testing.TB, f *gguf.File, name string) (values []float32, dims []int64) {
	t.Helper()
	tensor, ok := f.Tensor(name)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	raw := make([]byte, tensor.Bytes)
	if err := f.ReadTensor(tensor, raw); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(raw); i += 4 {
		values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
	}
	return values, tensor.Dims
}

// repeated finds where an index of a repeated dimension comes from.
func (d dim) repeated(i, factor int64) int64 {
	part := d.size / d.parts
	return i/(part*factor)*part + i%part
}

// compareTensor checks every number of the wide tensor against the small one's.
func compareTensor(small []float32, wide []float32, wideDims []int64, dims []dim, factors map[byte]int64, divided bool) error {
	factor := func(d dim) int64 { return max(factors[d.letter], 1) }
	by := float32(1)
	for i, d := range dims {
		if i >= len(wideDims) || wideDims[i] != d.size*factor(d) {
			return fmt.Errorf("dimensions %v, want dimension %d to be %d", wideDims, i, d.size*factor(d))
		}
		if i == 0 && divided {
			by = float32(factor(d))
		}
	}
	for at, got := range wide {
		source, stride, rest := int64(0), int64(1), int64(at)
		for i, d := range dims {
			source += stride * d.repeated(rest%wideDims[i], factor(d))
			stride *= d.size
			rest /= wideDims[i]
		}
		if got*by != small[source] {
			return fmt.Errorf("number %d is %v, want %v / %v", at, got, small[source], by)
		}
	}
	return nil
}
