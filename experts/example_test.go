package experts_test

import (
	"fmt"

	"outrider/experts"
	"outrider/layout"
)

func ExampleCache() {
	c, err := experts.New(experts.Options{
		Shape:       layout.Shape{Layers: 1, Experts: 4, TopK: 1},
		Bytes:       []int64{4096},
		BudgetBytes: 2 * 4096,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	id := layout.ExpertID{Layer: 0, Index: 3}
	_, outcome := c.Pin(id)
	fmt.Println(outcome)

	// The expert is absent: fill a slot, and commit it with one lease.
	fill, err := c.Begin(id, experts.Demand, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	n := copy(fill.Bytes(), "weights from a disk")
	leases := make([]experts.Lease, 1)
	if err := fill.Commit([]layout.Part{{At: 0, Bytes: int64(n)}}, leases); err != nil {
		fmt.Println(err)
		return
	}
	part := leases[0].Parts()[0]
	fmt.Printf("%s\n", leases[0].Bytes()[part.At:][:part.Bytes])
	if err := leases[0].Release(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// miss
	// weights from a disk
}

func ExampleTable() {
	table, err := experts.NewTable(experts.TableOptions{
		Shape:       layout.Shape{Layers: 1, Experts: 4, TopK: 1},
		BudgetBytes: 2,
		Bytes:       func(int) int64 { return 1 },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, index := range []int32{0, 1, 0, 2} {
		id := layout.ExpertID{Index: index}
		if outcome := table.Use(id); outcome.Resident() {
			fmt.Println(id, outcome)
			continue
		}
		evicted, err := table.Begin(id, experts.Demand, 0)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(id, "is read, evicted:", evicted)
		table.Commit(id, 0)
	}
	// Output:
	// layer 0 expert 0 is read, evicted: []
	// layer 0 expert 1 is read, evicted: []
	// layer 0 expert 0 hit
	// layer 0 expert 2 is read, evicted: [layer 0 expert 1]
}
