package gguf_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"outrider/internal/dequant"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/layout/discover"
	"outrider/layout/gguf"
)

// checkpoint builds a writer with the metadata of a model of this many experts
// and top-k 2.
func checkpoint(experts, blocks int) *gguf.Writer {
	w := &gguf.Writer{}
	w.Set("general.architecture", "test")
	w.Set("test.block_count", uint32(blocks))
	if experts > 0 {
		w.Set("test.expert_count", uint32(experts))
	}
	w.Set("test.expert_used_count", uint32(2))
	return w
}

func find(w *gguf.Writer, t *testing.T) (layout.Checkpoint, error) {
	t.Helper()
	return open(t, oneFile(t, w), "m.gguf").Checkpoint()
}

// stackedLayer adds gate, up and down of four experts.
func stackedLayer(w *gguf.Writer, block int) {
	add(w, fmt.Sprintf("blk.%d.ffn_gate_exps.weight", block), gguf.Q8_0, 32, 5, 4)
	add(w, fmt.Sprintf("blk.%d.ffn_up_exps.weight", block), gguf.Q8_0, 32, 5, 4)
	add(w, fmt.Sprintf("blk.%d.ffn_down_exps.weight", block), gguf.F16, 5, 32, 4)
}

func describe(l layout.CheckpointLayer) string {
	var s []string
	for _, t := range l.Tensors {
		s = append(s, fmt.Sprintf("%s %s %v %d", t.Name, t.Type, t.Dims, t.Bytes))
	}
	return strings.Join(s, ", ")
}

func TestCheckpointStacked(t *testing.T) {
	w := checkpoint(4, 4)
	w.Set("general.name", "Test Model")
	add(w, "token_embd.weight", gguf.F32, 32, 10)
	add(w, "blk.0.ffn_gate.weight", gguf.F32, 32, 5) // dense first layer
	add(w, "blk.0.ffn_up.weight", gguf.F32, 32, 5)
	add(w, "blk.0.ffn_down.weight", gguf.F32, 5, 32)
	// order in the file is not the order of a record
	add(w, "blk.1.ffn_down_exps.weight", gguf.F16, 5, 32, 4)
	add(w, "blk.1.ffn_down_exps.bias", gguf.F32, 32, 4)
	add(w, "blk.1.ffn_up_exps.weight", gguf.MXFP4, 32, 5, 4)
	add(w, "blk.1.ffn_up_exps.input_scale", gguf.F32, 4)
	add(w, "blk.1.ffn_gate_exps.bias", gguf.F32, 5, 4)
	add(w, "blk.1.ffn_gate_exps.weight", gguf.Q8_0, 32, 5, 4)
	add(w, "blk.1.ffn_gate_inp.weight", gguf.F32, 32, 4)
	add(w, "blk.1.ffn_gate_shexp.weight", gguf.F32, 32, 5)
	add(w, "blk.1.ffn_gate_chexps.weight", gguf.F32, 32, 5, 2)
	add(w, "blk.1.ffn_norm_exps.weight", gguf.F32, 32)
	add(w, "blk.1.exp_probs_b.bias", gguf.F32, 4)
	// fused, and nothing at block 2
	add(w, "blk.3.ffn_gate_up_exps.weight", gguf.Q4_0, 32, 10, 4)
	add(w, "blk.3.ffn_gate_up_exps.scale", gguf.F32, 4)
	add(w, "blk.3.ffn_down_exps.weight", gguf.F32, 5, 32, 4)
	fsys := oneFile(t, w)
	f := open(t, fsys, "m.gguf")
	cp, err := f.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	wantShape := layout.Shape{Layers: 2, Experts: 4, TopK: 2, LayerIDs: []int{1, 3}}
	if !cp.Shape.Equal(wantShape) || cp.Format != "gguf" || cp.Name != "Test Model" || cp.Architecture != "test" {
		t.Errorf("got %q %q %q %+v, want gguf, Test Model, test, %+v", cp.Format, cp.Name, cp.Architecture, cp.Shape, wantShape)
	}
	for l, want := range []string{
		"gate Q8_0 [32 5] 170, up MXFP4 [32 5] 85, gate.bias F32 [5] 20, up.input_scale F32 [1] 4, down F16 [5 32] 320, down.bias F32 [32] 128",
		"gate_up Q4_0 [32 10] 180, gate_up.scale F32 [1] 4, down F32 [5 32] 640",
	} {
		if got := describe(cp.Layers[l]); got != want {
			t.Errorf("layer %d: got %s, want %s", l, got, want)
		}
	}
	checkBytes(t, fsys, f, cp)
}

// checkBytes makes sure that expert and resident bytes are all tensor bytes,
// and that the spans of a tensor cover it without gap or overlap.
func checkBytes(t *testing.T, fsys *memfs.ReadOnly, f *gguf.File, cp layout.Checkpoint) {
	t.Helper()
	var all, experts int64
	for _, ts := range f.Tensors() {
		all += ts.Bytes
	}
	for _, l := range cp.Layers {
		for _, et := range l.Tensors {
			var joined []byte
			for e := range cp.Shape.Experts {
				s := et.Span(e)
				experts += s.Bytes
				joined = append(joined, fsys.Files[cp.Files[s.File].Path][s.Offset:s.Offset+s.Bytes]...)
			}
			src, ok := f.Tensor(strings.ReplaceAll(et.Source, "{expert}", "0"))
			if !ok {
				t.Fatalf("source %q is no tensor", et.Source)
			}
			if want := fsys.Files[cp.Files[src.Shard].Path][src.Offset : src.Offset+src.Bytes]; !bytes.HasPrefix(joined, want) {
				t.Errorf("%s: the experts' spans are not the tensor's bytes", et.Source)
			}
		}
	}
	if all != experts+cp.RestBytes {
		t.Errorf("got %d expert bytes and %d resident, want %d in all", experts, cp.RestBytes, all)
	}
}

func TestCheckpointPerExpert(t *testing.T) {
	w := checkpoint(3, 1)
	for _, e := range []int{2, 0, 1} {
		add(w, fmt.Sprintf("blk.0.ffn_down.%d.weight", e), gguf.Q8_0, 64, 32)
		add(w, fmt.Sprintf("blk.0.ffn_gate.%d.weight", e), gguf.Q8_0, 32, 64)
		add(w, fmt.Sprintf("blk.0.ffn_up.%d.weight", e), gguf.Q4_0, 32, 64)
	}
	add(w, "output.weight", gguf.F32, 7)
	fsys := &memfs.ReadOnly{Files: split(t, w, "m", 5, -1)}
	f := open(t, fsys, gguf.ShardName("m", 0, 2))
	cp, err := f.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describe(cp.Layers[0]), "gate Q8_0 [32 64] 2176, up Q4_0 [32 64] 1152, down Q8_0 [64 32] 2176"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, et := range cp.Layers[0].Tensors {
		for e := range 3 {
			src, _ := f.Tensor(fmt.Sprintf("blk.0.ffn_%s.%d.weight", et.Name, e))
			if got, want := et.Span(e), (layout.Span{File: src.Shard, Offset: src.Offset, Bytes: src.Bytes}); got != want {
				t.Errorf("%s of expert %d: got %v, want %v", et.Name, e, got, want)
			}
		}
	}
	if cp.RestBytes != 28 || cp.Name != "m-00001-of-00002" {
		t.Errorf("got %d resident bytes, name %q, want 28, the file's", cp.RestBytes, cp.Name)
	}
	checkBytes(t, fsys, f, cp)
}

// Blocks that predict further tokens hold experts that no pass uses.
func TestCheckpointLeavesOutPredictionBlocks(t *testing.T) {
	w := checkpoint(4, 3)
	w.Set("test.nextn_predict_layers", uint32(1))
	for b := range 3 {
		stackedLayer(w, b)
	}
	add(w, "blk.2.nextn.eh_proj.weight", gguf.F32, 6)
	cp, err := find(w, t)
	if err != nil {
		t.Fatal(err)
	}
	var one int64
	for _, tensor := range cp.Layers[0].Tensors {
		one += 4 * tensor.Bytes
	}
	want := []layout.ResidentGroup{{Name: "prediction blocks", Tensors: 4, Bytes: one + 24, LeftOut: true}}
	if cp.Shape.Layers != 2 || cp.Shape.LayerIDs != nil || cp.RestBytes != 0 || !slices.Equal(cp.Resident, want) {
		t.Errorf("got %+v, %d resident bytes, groups %+v, want 2 layers, none, %+v", cp.Shape, cp.RestBytes, cp.Resident, want)
	}
	all, err := open(t, oneFile(t, w), "m.gguf").CheckpointWith(discover.Options{Predict: true, TopK: 3})
	if err != nil {
		t.Fatal(err)
	}
	if all.Shape.Layers != 3 || all.Shape.TopK != 3 || all.RestBytes != 24 {
		t.Errorf("with prediction: got %+v, %d resident bytes, want 3 layers, top-k 3, 24 bytes", all.Shape, all.RestBytes)
	}
}

func TestCheckpointWithoutGate(t *testing.T) {
	w := checkpoint(0, 1) // nor expert_count
	add(w, "blk.0.ffn_up_exps.weight", gguf.F16, 8, 6, 4)
	add(w, "blk.0.ffn_down_exps.weight", gguf.F16, 6, 8, 4)
	cp, err := find(w, t)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describe(cp.Layers[0]), "up F16 [8 6] 96, down F16 [6 8] 96"; got != want || cp.Shape.Experts != 4 {
		t.Errorf("got %d experts, %s, want 4, %s", cp.Shape.Experts, got, want)
	}
}

func TestCheckpointErrors(t *testing.T) {
	one := func(name string, typ gguf.Type, dims ...int64) func(*gguf.Writer) {
		return func(w *gguf.Writer) { add(w, name, typ, dims...) }
	}
	layer0 := func(w *gguf.Writer) { stackedLayer(w, 0) }
	for _, c := range []struct {
		name    string
		experts int
		build   []func(*gguf.Writer)
		is      error
		want    string
	}{
		{"dense", 4, []func(*gguf.Writer){one("blk.0.ffn_gate.weight", gguf.F32, 4)}, gguf.ErrNoExperts, "none of 1 tensors is named blk.N.ffn_{gate,up,gate_up,down}_exps.weight"},
		{"parts of a segment don't match", 4, []func(*gguf.Writer){one("blk.0.ffn_gate_expsx.weight", gguf.F32, 4, 4, 4), one("blk.0.ffn_gate_inp_exps_.weight", gguf.F32, 4, 4, 4)}, gguf.ErrNoExperts, "none of 2"},
		{"empty", 4, nil, gguf.ErrNoExperts, "none of 0 tensors"},
		{"imatrix", 4, []func(*gguf.Writer){layer0, func(w *gguf.Writer) { w.Set("general.type", "imatrix") }}, gguf.ErrNoExperts, `general.type is "imatrix", want "model"`},
		{"other expert count", 8, []func(*gguf.Writer){layer0}, gguf.ErrExperts, `"blk.0.ffn_gate_exps.weight" has dimensions [32 5 4], want 3 of them, the last 8`},
		{"layers of unequal count", 4, []func(*gguf.Writer){layer0, one("blk.1.ffn_up_exps.weight", gguf.F32, 2, 2, 5), one("blk.1.ffn_down_exps.weight", gguf.F32, 2, 2, 5)}, gguf.ErrExperts, `"blk.1.ffn_up_exps.weight" has dimensions [2 2 5]`},
		{"top-k above experts", 1, []func(*gguf.Writer){layer0}, gguf.ErrExperts, "top-k 2, want 1 to 1"},
		{"no down", 4, []func(*gguf.Writer){one("blk.0.ffn_gate_exps.weight", gguf.F32, 2, 2, 4), one("blk.0.ffn_up_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, `block 0 has gate, up (as "blk.0.ffn_gate_exps.weight"), want down and up`},
		{"no up", 4, []func(*gguf.Writer){one("blk.0.ffn_gate_exps.weight", gguf.F32, 2, 2, 4), one("blk.0.ffn_down_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, "block 0 has down, gate"},
		{"fused and apart", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_gate_up_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, "gate_up and also gate or up"},
		{"bias of nothing", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_gate_up_exps.bias", gguf.F32, 2, 4)}, gguf.ErrExperts, `"blk.0.ffn_gate_up_exps.bias" belongs to no record`},
		{"unknown projection", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_side_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, `"blk.0.ffn_side_exps.weight" is named like a routed expert's`},
		{"unknown suffix", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_gate_exps.qzeros", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, `"blk.0.ffn_gate_exps.qzeros"`},
		{"repacked and not", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_up_exps.3.numa.0.weight", gguf.F32, 2)}, gguf.ErrExperts, "single experts' tensors of the same projection"},
		{"down turned", 4, []func(*gguf.Writer){one("blk.0.ffn_up_exps.weight", gguf.F32, 2, 6, 4), one("blk.0.ffn_down_exps.weight", gguf.F32, 2, 6, 4)}, gguf.ErrExperts, `"blk.0.ffn_up_exps.weight" and "blk.0.ffn_down_exps.weight" do not fit each other`},
		{"no block number", 4, []func(*gguf.Writer){layer0, one("enc.blk.0.ffn_up_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, "enc.blk.0.ffn_up_exps.weight"},
		{"block number with a zero", 4, []func(*gguf.Writer){layer0, one("blk.00.ffn_up_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, "blk.00.ffn_up_exps.weight"},
		{"block beyond the count", 4, []func(*gguf.Writer){layer0, one("blk.4.ffn_up_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, "beyond the model's 4 blocks"},
		{"wrong rank", 4, []func(*gguf.Writer){layer0, one("blk.1.ffn_up_exps.weight", gguf.F32, 4, 4), one("blk.1.ffn_down_exps.weight", gguf.F32, 2, 2, 4)}, gguf.ErrExperts, "has dimensions [4 4], want 3"},
		{"side tensor of other count", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_up_exps.scale", gguf.F32, 5)}, gguf.ErrExperts, "has dimensions [5], want 1 of them, the last 4"},
		{"scale in blocks", 32, []func(*gguf.Writer){one("blk.0.ffn_up_exps.weight", gguf.F32, 2, 2, 32), one("blk.0.ffn_down_exps.weight", gguf.F32, 2, 2, 32), one("blk.0.ffn_up_exps.scale", gguf.Q8_0, 32)}, gguf.ErrExperts, "34 bytes, which 32 experts do not share evenly"},
		{"single expert missing", 2, []func(*gguf.Writer){one("blk.0.ffn_up.0.weight", gguf.F32, 2, 2), one("blk.0.ffn_up.1.weight", gguf.F32, 2, 2), one("blk.0.ffn_down.1.weight", gguf.F32, 2, 2)}, gguf.ErrExperts, "block 0 has no down of expert 0; 1 of 2 experts are there"},
		{"single expert too many", 2, []func(*gguf.Writer){one("blk.0.ffn_up.0.weight", gguf.F32, 2, 2), one("blk.0.ffn_up.7.weight", gguf.F32, 2, 2), one("blk.0.ffn_down.1.weight", gguf.F32, 2, 2)}, gguf.ErrExperts, `"blk.0.ffn_up.7.weight": the model has 2 experts`},
		{"single experts of unequal make", 2, []func(*gguf.Writer){one("blk.0.ffn_up.0.weight", gguf.F32, 2, 2), one("blk.0.ffn_up.1.weight", gguf.F16, 2, 2), one("blk.0.ffn_down.1.weight", gguf.F32, 2, 2)}, gguf.ErrExperts, `"blk.0.ffn_up.1.weight" is F16, dimensions [2 2], want F32, dimensions [2 2]`},
		{"stacked and single", 4, []func(*gguf.Writer){layer0, one("blk.0.ffn_up.0.weight", gguf.Q8_0, 32, 5)}, gguf.ErrExperts, "single experts' tensors of the same projection"},
		{"prediction blocks only", 4, []func(*gguf.Writer){layer0, func(w *gguf.Writer) { w.Set("test.nextn_predict_layers", uint32(4)) }}, gguf.ErrExperts, "nextn_predict_layers is 4 of block_count 4"},
		{"count is a string", 0, []func(*gguf.Writer){layer0, func(w *gguf.Writer) { w.Set("test.expert_count", "four") }}, gguf.ErrExperts, `"test.expert_count" is four (string)`},
		{"count of 2^40", 0, []func(*gguf.Writer){layer0, func(w *gguf.Writer) { w.Set("test.expert_count", uint64(1<<40)) }}, gguf.ErrExperts, "want a number up to"},
		{"count unknown, rank wrong", 0, []func(*gguf.Writer){one("blk.0.ffn_up_exps.weight", gguf.F32, 4)}, gguf.ErrExperts, "has dimensions [4], want 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := checkpoint(c.experts, 4)
			for _, build := range c.build {
				build(w)
			}
			_, err := find(w, t)
			var fe *gguf.FormatError
			if !errors.Is(err, c.is) || !errors.As(err, &fe) || fe.Path != "m.gguf" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a FormatError with %v and %q", err, c.is, c.want)
			}
		})
	}
}

func TestCheckpointNeedsTopK(t *testing.T) {
	w := &gguf.Writer{}
	w.Set("general.architecture", "test")
	stackedLayer(w, 0)
	if _, err := find(w, t); !errors.Is(err, gguf.ErrExperts) || !strings.Contains(err.Error(), `"test.expert_used_count" is missing`) {
		t.Errorf("got %v, want %v and the key's name", err, gguf.ErrExperts)
	}
}

// Every quantised file must hold, where it says expert e lies, what the F16
// file holds for that expert, to the precision of its type.
func TestCheckpointRealWeights(t *testing.T) {
	exact := open(t, layout.OS(), dataFile(t, "tinymoe-f16.gguf"))
	want, err := exact.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if got := want.Shape; !got.Equal(layout.Shape{Layers: 8, Experts: 32, TopK: 4}) || want.RestBytes != 4475904 {
		t.Errorf("got shape %+v, %d resident bytes, want 8 x 32, top 4, 4475904", got, want.RestBytes)
	}
	for _, c := range []struct {
		name  string
		limit float64 // relative error of a projection, root mean square
	}{
		{"tinymoe-q8_0.gguf", 0.01},
		{"tinymoe-q4_k_m-00002-of-00003.gguf", 0.10},
		{"tinymoe-mxfp4_moe.gguf", 0.15},
	} {
		f := open(t, layout.OS(), dataFile(t, c.name))
		cp, err := f.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for l := range cp.Layers {
			for i, et := range cp.Layers[l].Tensors {
				for _, e := range []int{0, 13, 31} {
					got, exact := weights(t, cp, et, e), weights(t, want, want.Layers[l].Tensors[i], e)
					worst = max(worst, relativeError(got, exact))
				}
			}
		}
		if worst > c.limit || worst == 0 {
			t.Errorf("%s: got relative error %.4f, want up to %v", c.name, worst, c.limit)
		}
	}
}

// weights reads one expert's projection from its span.
func weights(t *testing.T, cp layout.Checkpoint, et layout.ExpertTensor, e int) []float32 {
	t.Helper()
	span := et.Span(e)
	file, err := os.Open(cp.Files[span.File].Path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	raw := make([]byte, span.Bytes)
	if _, err := file.ReadAt(raw, span.Offset); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, et.Dims[0]*et.Dims[1])
	if err := dequant.Row(et.Type, raw, x); err != nil {
		t.Fatal(err)
	}
	return x
}

func relativeError(got, want []float32) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i] - w)
		diff += d * d
		norm += float64(w) * float64(w)
	}
	return math.Sqrt(diff / norm)
}

func TestCheckpointOneLayer(t *testing.T) {
	cp, err := open(t, layout.OS(), dataFile(t, "tinymoe-1layer-q4_0.gguf")).Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, 3)
	for _, et := range cp.Layers[0].Tensors {
		names = append(names, et.Source)
	}
	if want := []string{"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"}; cp.Shape.Layers != 1 || !slices.Equal(names, want) {
		t.Errorf("got %d layers, %v, want 1, %v", cp.Shape.Layers, names, want)
	}
}

func TestCheckpointOfImatrix(t *testing.T) {
	_, err := open(t, layout.OS(), dataFile(t, "tinymoe.imatrix.gguf")).Checkpoint()
	if !errors.Is(err, gguf.ErrNoExperts) || !strings.Contains(err.Error(), "imatrix") {
		t.Errorf("got %v, want %v naming the kind of file", err, gguf.ErrNoExperts)
	}
}
