package runtime_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	goruntime "runtime"
	"testing"
	"unsafe"

	"outrider/internal/device"
	"outrider/runtime"
)

// With fixed addresses a layer is one stack of experts: each lies at its number
// times the slot, every time it is read, while others come and go.
func TestFixedPlacementIsAStack(t *testing.T) {
	records, err := device.NewRecords(device.RecordsOptions{Shape: small})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := runtime.New(records, runtime.Options{BudgetBytes: 5 * slotBytes, FixedBudget: true, Placement: runtime.PlacementFixed})
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
	for range 60 {
		for layer := range small.Layers {
			stack := rt.Stack(layer)
			if int64(len(stack)) != int64(small.Experts)*rt.SlotBytes(layer) {
				t.Fatalf("layer %d: a stack of %d bytes, want %d experts of %d", layer, len(stack), small.Experts, rt.SlotBytes(layer))
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
				at := stack[int64(ex.Index())*rt.SlotBytes(layer)+down.At:][:len(down.Data)]
				if unsafe.SliceData(at) != unsafe.SliceData(down.Data) || !bytes.Equal(at, down.Data) {
					t.Fatalf("%v does not lie in its place of the stack", ex.ID())
				}
			}
			use.Release()
		}
	}
	if rt.Stack(-1) != nil || rt.Stack(small.Layers) != nil {
		t.Error("got a stack of a layer that does not exist")
	}
	pooled := open(t, 5, device.Model{}, runtime.Options{})
	defer pooled.Close()
	if pooled.Stack(0) != nil {
		t.Error("got a stack of pooled slots")
	}
}
