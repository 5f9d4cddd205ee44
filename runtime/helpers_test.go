package runtime_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"outrider/internal/device"
	"outrider/layout"
	"outrider/router"
	"outrider/runtime"
	"outrider/trace"
)

// small is the shape that most tests use.
var small = layout.Shape{Layers: 4, Experts: 16, TopK: 2}

const slotBytes = 8192

// model is a runtime over experts of known contents on a modelled drive.
type model struct {
	*runtime.Runtime
	records *device.Records
	drive   *device.Drive
	t       testing.TB
}

// open makes a runtime that holds the given number of experts.
func open(t testing.TB, experts int, drive device.Model, o runtime.Options) *model {
	t.Helper()
	d := device.New(drive)
	records, err := device.NewRecords(device.RecordsOptions{Shape: small, Drives: []*device.Drive{d}})
	if err != nil {
		t.Fatal(err)
	}
	o.BudgetBytes = int64(experts) * slotBytes
	o.FixedBudget = true // of this machine; a test of its own watches pressure
	rt, err := runtime.New(records, o)
	if err != nil {
		t.Fatal(err)
	}
	return &model{Runtime: rt, records: records, drive: d, t: t}
}

// slow is a drive that takes a millisecond for a read.
var slow = device.Model{Latency: time.Millisecond}

// check compares an expert's projections with the truth.
func (m *model) check(ex runtime.Expert) {
	m.t.Helper()
	var got []byte
	for _, name := range []string{"up", "down"} {
		p, ok := ex.Projection(name)
		if !ok {
			m.t.Errorf("%v has no %s", ex.ID(), name)
			return
		}
		got = append(got, p.Data...)
	}
	if !bytes.Equal(got, m.records.Want(ex.ID())) {
		m.t.Errorf("%v: the weights are not its own", ex.ID())
	}
}

// choose makes the choice of one token.
func choose(ids ...int32) []router.Choice { return []router.Choice{{Experts: ids}} }

// wander chooses distinct experts, most of them from a few favourites.
func wander(r *rand.Rand, shape layout.Shape, n int) []int32 {
	seen := make(map[int32]bool)
	var ids []int32
	for len(ids) < n {
		e := int32(r.IntN(shape.Experts))
		if r.IntN(4) > 0 {
			e = int32(r.IntN(shape.Experts/4)) * 3 % int32(shape.Experts)
		}
		if !seen[e] {
			seen[e] = true
			ids = append(ids, e)
		}
	}
	return ids
}

// keptTrace is a trace.Sink that keeps a line for each activation.
type keptTrace []string

func (k *keptTrace) Append(a *trace.Activation) error {
	*k = append(*k, fmt.Sprintf("seq %d pos %d %v token %d %v %v", a.Seq, a.Pos, a.Phase, a.Token, a.Experts, a.Weights))
	return nil
}

func (k *keptTrace) Flush() error { return nil }
func (k *keptTrace) Close() error { return nil }
