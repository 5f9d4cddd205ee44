package runtime_test

import (
	"errors"
	"testing"
	"unsafe"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/layout"
	"outrider/runtime"
)

// shelf is a memory of the runner's: slots that come and go, and stacks of its own.
type shelf struct {
	experts.Memory
	stack  []byte
	slots  []int64
	taken  int
	closed int
}

var _ experts.Stacked = (*shelf)(nil)

func (s *shelf) Take(id layout.ExpertID, bytes int64) ([]byte, error) {
	s.taken++
	return s.Memory.Take(id, bytes)
}

func (s *shelf) Stack(int) []byte            { return s.stack }
func (s *shelf) StackStride(layer int) int64 { return 2 * s.slots[layer] }

func (s *shelf) Close() error {
	s.closed++
	return s.Memory.Close()
}

// A runner's own memory takes the place of that with fixed addresses: reads land in
// what it lends, and it says where the stacks are.
func TestStackedMemoryOfTheRunner(t *testing.T) {
	s := &shelf{Memory: experts.NewHeapMemory(), stack: make([]byte, 10)}
	m := open(t, 5, device.Model{}, runtime.Options{Placement: runtime.PlacementFixed, Stacked: func(shape layout.Shape, bytes []int64) (experts.Stacked, error) {
		if shape.Count() != small.Count() || len(bytes) != small.Layers || bytes[0] != slotBytes {
			t.Errorf("got shape %+v and slots of %v bytes", shape, bytes)
		}
		s.slots = bytes
		return s, nil
	}})
	if got := m.Stack(1); unsafe.SliceData(got) != unsafe.SliceData(s.stack) || m.StackStride(1) != 2*slotBytes || m.Stack(small.Layers) != nil {
		t.Errorf("got a stack of %d bytes, stride %d: want the memory's, and none of a layer that does not exist", len(got), m.StackStride(1))
	}
	if base, _ := m.Slots(); base != nil {
		t.Error("got a range of slots beside stacks")
	}
	use, err := m.NewSession().Use(t.Context(), 1, choose(2, 3))
	if err != nil {
		t.Fatal(err)
	}
	for ex, err := range use.Ready(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		m.check(ex)
	}
	use.Release()
	if err := m.Close(); err != nil || s.taken < 2 || s.closed != 1 {
		t.Errorf("got error %v, %d slots taken, closed %d times; want nil, 2 or more, 1", err, s.taken, s.closed)
	}
}

func TestStackedMemoryThatCannotBe(t *testing.T) {
	records, err := device.NewRecords(device.RecordsOptions{Shape: small})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no such memory")
	_, err = runtime.New(records, runtime.Options{BudgetBytes: 5 * slotBytes, Placement: runtime.PlacementFixed,
		Stacked: func(layout.Shape, []int64) (experts.Stacked, error) { return nil, refused }})
	if !errors.Is(err, refused) {
		t.Errorf("got %v, want the memory's own error", err)
	}
}
