package importer

import (
	"compress/gzip"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outrider/internal/testfiles"
	"outrider/layout/gguf"
	"outrider/trace"
)

// imatrixWriter writes what llama-imatrix writes, as far as it is read here.
type imatrixWriter struct{ gguf.Writer }

func newImatrixWriter(datasets ...string) *imatrixWriter {
	w := &imatrixWriter{}
	w.Set("general.type", "imatrix")
	w.Set("imatrix.datasets", datasets)
	w.Set("imatrix.chunk_count", uint32(2))
	w.Set("imatrix.chunk_size", uint32(512))
	return w
}

func (w *imatrixWriter) counts(weight string, counts ...float32) *imatrixWriter {
	row := make([]byte, 8*len(counts))
	w.TensorBytes(weight+".in_sum2", gguf.F32, []int64{2, int64(len(counts))}, row)
	var b []byte
	for _, n := range counts {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(n))
	}
	w.TensorBytes(weight+".counts", gguf.F32, []int64{1, int64(len(counts))}, b)
	return w
}

func (w *imatrixWriter) text(t testing.TB) string {
	t.Helper()
	b, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func imatrixSample() *imatrixWriter {
	w := newImatrixWriter("/home/me/calibration.txt", `C:\texts\code.txt`)
	for _, p := range []string{"down", "gate", "up"} {
		w.counts("blk.1.ffn_"+p+"_exps.weight", 10, 0, 6, 4).counts("blk.3.ffn_"+p+"_exps.weight", 1, 9, 3, 7)
	}
	w.counts("blk.1.ffn_gate_inp.weight", 10).counts("blk.3.ffn_gate_inp.weight", 10)
	return w.counts("blk.1.ffn_up_shexp.weight", 10).counts("output.weight", 10)
}

func TestImatrix(t *testing.T) {
	i := txOpen(t, formImatrix, Options{Model: "m"}, txFile(t, "imatrix.gguf", imatrixSample().text(t)))
	want := &trace.Histogram{
		Model: "m", Layers: 2, LayerIDs: []int{1, 3}, Experts: 4, TopK: 2, Unit: "tokens",
		Source: "imported from llama-imatrix: imatrix.gguf, over calibration.txt, code.txt", Note: "2 chunks of 512 tokens",
		Tables: []trace.Counts{{Counts: [][]float64{{10, 0, 6, 4}, {1, 9, 3, 7}}}},
	}
	if diff := cmp.Diff(want, i.Histogram); diff != "" {
		t.Errorf("histogram (-want +got):\n%s", diff)
	}
}

// Without all routers' counts, or with some that leave tokens over, top-k stays unknown.
func TestImatrixTopK(t *testing.T) {
	layer := func(inp float32) *imatrixWriter {
		w := newImatrixWriter("a").counts("blk.0.ffn_up_exps.weight", 10, 0, 6, 4)
		if inp > 0 {
			w.counts("blk.0.ffn_gate_inp.weight", inp)
		}
		return w
	}
	for _, c := range []struct {
		inp  float32
		opts int
		want int
	}{{0, 0, 0}, {10, 0, 2}, {16, 0, 0}, {30, 0, 0}, {1, 0, 0}, {0, 3, 3}} {
		i := txOpen(t, formImatrix, Options{TopK: c.opts}, txFile(t, "imatrix.gguf", layer(c.inp).text(t)))
		if got := i.Histogram.TopK; got != c.want {
			t.Errorf("router counted %v, --top-k %d: top-k is %d, want %d", c.inp, c.opts, got, c.want)
		}
	}
}

func TestImatrixNotes(t *testing.T) {
	w := newImatrixWriter("a").counts("blk.0.ffn_up_exps.weight", 9, 0, 6, 4).counts("blk.0.ffn_gate_exps.weight", 1<<24, 0, 6, 4)
	i := txOpen(t, formImatrix, Options{}, txFile(t, "imatrix.gguf", w.text(t)))
	txWantNote(t, i, "In 1 of 1 layers the projections were counted differently")
	txWantNote(t, i, "those of ffn_gate_exps are given")
	txWantNote(t, i, "rounded")
	if got := i.Histogram.Tables[0].Counts[0][0]; got != 1<<24 {
		t.Errorf("the count is %v, want that of ffn_gate_exps", got)
	}
}

func TestImatrixOfTinymoe(t *testing.T) {
	path := testfiles.Shared(t, "tinymoe/tinymoe.imatrix.gguf")
	h := txOpen(t, formImatrix, Options{}, path).Histogram
	if h.Layers != 8 || h.Experts != 32 || h.TopK != 4 || h.LayerIDs != nil || h.Note != "72 chunks of 512 tokens" {
		t.Errorf("got %d layers, %d experts, top-k %d, ids %v, note %q", h.Layers, h.Experts, h.TopK, h.LayerIDs, h.Note)
	}
	for l, row := range h.Tables[0].Counts {
		sum := 0.0
		for _, n := range row {
			sum += n
		}
		if sum != 72*512*4 {
			t.Errorf("layer %d counts %v uses, want 4 for each of 72 x 512 tokens", l, sum)
		}
	}
}

func TestImatrixDamage(t *testing.T) {
	ok := imatrixSample().text(t)
	of := func(weight string, counts ...float32) string {
		return newImatrixWriter("a").counts(weight, counts...).text(t)
	}
	half := newImatrixWriter("a")
	half.TensorBytes("blk.0.ffn_up_exps.weight.counts", gguf.F16, []int64{1, 4}, make([]byte, 8))
	txRunDamage(t, formImatrix, "imatrix.gguf", Options{}, []txDamage{
		{name: "not GGUF", content: "x" + ok, want: "not a GGUF file", is: gguf.ErrNotGGUF},
		{name: "cut", content: ok[:len(ok)-40], want: "file is truncated", is: gguf.ErrTruncated},
		{name: "no experts", content: of("blk.0.attn_q.weight", 3), want: "it has no counts of routed experts"},
		{name: "one count", content: of("blk.0.ffn_up_exps.weight", 3), want: "one count for all experts", is: ErrLossy},
		{name: "equal counts", content: of("blk.0.ffn_up_exps.weight", 3, 3, 3), want: "the same count", is: ErrLossy},
		{name: "fraction", content: of("blk.0.ffn_up_exps.weight", 3, 2.5), want: "2.5 is no count"},
		{name: "negative", content: of("blk.0.ffn_up_exps.weight", 3, -2), want: "-2 is no count"},
		{name: "infinite", content: of("blk.0.ffn_up_exps.weight", 3, float32(math.Inf(1))), want: "+Inf is no count"},
		{name: "nan", content: of("blk.0.ffn_up_exps.weight", 3, float32(math.NaN())), want: "NaN is no count"},
		{name: "type", content: half.text(t), want: "has type F16 and 8 bytes"},
		{name: "ragged", content: newImatrixWriter("a").counts("blk.0.ffn_up_exps.weight", 3, 2).counts("blk.1.ffn_up_exps.weight", 3, 2, 1).text(t), want: "block 1 has 3 experts, but block 0 has 2"},
		{name: "other experts", content: ok, want: "the data has experts 4, but 8 was given", is: errAny, opts: &Options{Experts: 8}},
		{name: "layer ids", content: newImatrixWriter("a").counts("blk.0.ffn_up_exps.weight", 3, 2).text(t), want: "2 layer ids were given, but the data has 1 layers", is: errAny, opts: &Options{LayerIDs: []int{1, 2}}},
	})
}

func TestImatrixPacked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "imatrix.gguf.gz")
	var b strings.Builder
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(imatrixSample().text(t))); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open([]string{path}, Options{}); err == nil || !strings.Contains(err.Error(), "unpack it first") {
		t.Errorf("got %v, want the advice to unpack it", err)
	}
}

func FuzzImatrix(f *testing.F) {
	txFuzz(f, formImatrix, "imatrix.gguf", Options{}, imatrixSample().text(f))
}
