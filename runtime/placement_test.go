package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"outrider/internal/device"
	"outrider/internal/memfs"
	"outrider/layout"
	"outrider/runtime"
)

// With fixed addresses a layer is one stack of experts: each lies at its number
// times the stride, every time it is read, while others come and go.
func TestFixedPlacementIsAStack(t *testing.T) {
	for size, rounds := range map[int64]int{slotBytes: 60, 640 << 10: 4} { // pages move in the larger
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) { checkIsAStack(t, size, rounds) })
	}
	pooled := open(t, 5, device.Model{}, runtime.Options{})
	defer pooled.Close()
	if pooled.Stack(0) != nil || pooled.StackStride(0) != 0 {
		t.Error("got a stack or a stride of pooled slots")
	}
}

func checkIsAStack(t *testing.T, size int64, rounds int) {
	records, err := device.NewRecords(device.RecordsOptions{Shape: small, Bytes: func(int) int64 { return size }})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.New(records, runtime.Options{BudgetBytes: 5 * size, FixedBudget: true, Placement: runtime.PlacementFixed})
	if goruntime.GOOS != "linux" {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("got %v, want ErrUnsupported on this system", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	m := &model{Runtime: rt, records: records, t: t}
	s, r := rt.NewSession(), rand.New(rand.NewPCG(2, 2))
	for range rounds {
		for layer := range small.Layers {
			stack := rt.Stack(layer)
			stride := rt.StackStride(layer)
			if int64(len(stack)) != int64(small.Experts)*stride || stride < rt.SlotBytes(layer) {
				t.Fatalf("layer %d: a stack of %d bytes, want %d experts %d apart and no less than the %d of a slot", layer, len(stack), small.Experts, stride, rt.SlotBytes(layer))
			}
			use, err := s.Use(t.Context(), layer, choose(wander(r, small, 2)...))
			if err != nil {
				t.Fatal(err)
			}
			for ex, err := range use.Ready(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				m.check(ex)
				down, _ := ex.Projection("down")
				at := stack[int64(ex.Index())*stride+down.At:][:len(down.Data)]
				if unsafe.SliceData(at) != unsafe.SliceData(down.Data) || !bytes.Equal(at, down.Data) {
					t.Fatalf("%v does not lie in its place of the stack", ex.ID())
				}
			}
			use.Release()
		}
	}
	if rt.Stack(-1) != nil || rt.Stack(small.Layers) != nil || rt.StackStride(-1) != 0 || rt.StackStride(small.Layers) != 0 {
		t.Error("got a stack or a stride of a layer that does not exist")
	}
}

// stackModel is a checkpoint of experts with two projections of 4 and 8 KiB, the tensors
// one behind the other from an offset on.
func stackModel(t *testing.T, fsys *memfs.FS, first int64) layout.Checkpoint {
	t.Helper()
	cp := layout.Checkpoint{Format: "gguf", Name: "stack", Shape: layout.Shape{Layers: 2, Experts: 4, TopK: 1}}
	at := first
	for range cp.Shape.Layers {
		var tensors []layout.ExpertTensor
		for _, p := range []layout.Projection{
			{Name: "up", Type: "F32", Dims: []int64{128, 8}, Bytes: 4096},
			{Name: "down", Type: "F32", Dims: []int64{8, 256}, Bytes: 8192},
		} {
			tensors = append(tensors, layout.ExpertTensor{Projection: p, Source: p.Name, Offset: at})
			at += int64(cp.Shape.Experts) * p.Bytes
		}
		cp.Layers = append(cp.Layers, layout.CheckpointLayer{Tensors: tensors})
	}
	data := make([]byte, at)
	for i := range data {
		data[i] = byte(i * 31 >> 8)
	}
	if err := fsys.WriteFile("/stack.gguf", data); err != nil {
		t.Fatal(err)
	}
	cp.Files = []layout.CheckpointFile{{Path: "/stack.gguf", Size: at, Header: "00"}}
	return cp
}

// smallRecords makes the second projection 6,400 bytes: no multiple of 4096.
func smallRecords(cp layout.Checkpoint) {
	for _, l := range cp.Layers {
		l.Tensors[1].Dims, l.Tensors[1].Bytes = []int64{8, 200}, 6400
	}
}

// ownTensors gives each expert tensors of its own, which touch in expert 0 only; the
// first is no multiple of 64.
func ownTensors(cp layout.Checkpoint) {
	for _, l := range cp.Layers {
		up, down := &l.Tensors[0], &l.Tensors[1]
		up.Dims, up.Bytes = []int64{1000, 1}, 4000
		at := up.Offset
		for e := range int64(cp.Shape.Experts) {
			gap := min(e, 1) * 4
			up.Each = append(up.Each, layout.Span{Offset: at, Bytes: up.Bytes})
			down.Each = append(down.Each, layout.Span{Offset: at + up.Bytes + gap, Bytes: down.Bytes})
			at += up.Bytes + gap + down.Bytes
		}
	}
}

// Where the projections of all experts lie alike, SlotOffsets tells where, and what is
// read lies there; where they do not, it says why and what to do.
func TestSlotOffsets(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("fixed addresses need Linux")
	}
	for _, tt := range []struct {
		name  string
		first int64
		align int   // of direct reads; 0: buffered
		store int64 // its alignment; 0: in place
		other func(layout.Checkpoint)
		want  []int64
		words []string
	}{
		{"store", 64, 4096, 4096, nil, []int64{0, 4096}, nil},
		{"store of odd records", 64, 4096, 4096, smallRecords, []int64{0, 4096}, nil},
		{"store of a smaller alignment", 64, 4096, 512, smallRecords, nil, []string{`"up"`, "lane-0.bin begin at multiples of 4096", "--align 4096", "Buffered"}},
		{"the same, buffered", 64, 0, 512, smallRecords, []int64{0, 4096}, nil},
		{"in place, aligned", 4096, 4096, 0, nil, []int64{0, 4096}, nil},
		{"in place, equally off", 4096 + 64, 4096, 0, nil, []int64{64, 8192 + 64}, nil},
		{"in place, off", 64, 4096, 0, smallRecords, nil, []string{`layer 0: projection "down"`, "into expert 0", "/stack.gguf begin at multiples of 4096", "--align 4096", "Buffered"}},
		{"the same, small alignment", 64, 512, 0, smallRecords, nil, []string{"multiples of 512"}},
		{"the same, buffered", 64, 0, 0, smallRecords, []int64{0, 4096}, nil},
		{"own tensors, buffered", 64, 0, 0, ownTensors, nil, []string{`"down" begins 4000 bytes into expert 0 and 4032 into expert 1`, "/stack.gguf does not have them alike", "build a store"}},
		{"own tensors in a store", 64, 4096, 4096, ownTensors, []int64{0, 4032}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := memfs.New(memfs.Options{Align: layout.Alignment{Memory: tt.align, Offset: tt.align}})
			cp := stackModel(t, fsys, tt.first)
			if tt.other != nil {
				tt.other(cp)
			}
			rt, err := runtime.New(stackSource(t, fsys, cp, tt.store), runtime.Options{BudgetBytes: 1 << 20, FixedBudget: true, Placement: runtime.PlacementFixed})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close()
			offsets, err := rt.SlotOffsets(0)
			if !slices.Equal(offsets, tt.want) || (err == nil) != (tt.words == nil) {
				t.Fatalf("got %v and error %v, want %v", offsets, err, tt.want)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			if err == nil {
				checkStack(t, rt, 1)
			}
		})
	}
}

func stackSource(t *testing.T, fsys *memfs.FS, cp layout.Checkpoint, align int64) layout.Source {
	t.Helper()
	if align == 0 {
		source, err := layout.OpenInPlace(fsys, cp, layout.Direct)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	plan, err := layout.PlanStore(cp, layout.PlanOptions{Align: align})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Build(t.Context(), layout.BuildOptions{FS: fsys, Dir: "/m", Plan: plan, Checkpoint: &cp}); err != nil {
		t.Fatal(err)
	}
	source, err := layout.OpenStore(fsys, "/m", layout.Direct)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// checkStack reads all experts of a layer and finds each projection where SlotOffsets says.
func checkStack(t *testing.T, rt *runtime.Runtime, layer int) {
	t.Helper()
	offsets, err := rt.SlotOffsets(layer)
	if err != nil {
		t.Fatal(err)
	}
	use, err := rt.NewSession().Use(t.Context(), layer, choose(0, 1, 2, 3))
	if err != nil {
		t.Fatal(err)
	}
	defer use.Release()
	for ex, err := range use.Ready(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		for k := range offsets {
			p, _ := ex.At(k)
			at := rt.Stack(layer)[int64(ex.Index())*rt.StackStride(layer)+offsets[k]:]
			if unsafe.SliceData(at) != unsafe.SliceData(p.Data) {
				t.Errorf("%v: %s does not begin %d bytes into its expert", ex.ID(), p.Name, offsets[k])
			}
		}
	}
}

func TestSlotOffsetsRefuses(t *testing.T) {
	pooled := open(t, 5, device.Model{}, runtime.Options{})
	defer pooled.Close()
	if _, err := pooled.SlotOffsets(0); err != nil {
		t.Errorf("pooled: got %v, want no error", err)
	}
	if goruntime.GOOS != "linux" {
		return
	}
	fixed := open(t, 5, device.Model{}, runtime.Options{Placement: runtime.PlacementFixed})
	defer fixed.Close()
	for _, layer := range []int{-1, small.Layers} {
		if _, err := fixed.SlotOffsets(layer); err == nil || !strings.Contains(err.Error(), "outside") {
			t.Errorf("layer %d: got %v, want an error", layer, err)
		}
	}
}
