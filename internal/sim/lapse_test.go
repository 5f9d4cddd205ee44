package sim

import (
	"testing"

	"outrider/internal/passes"
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// TestUnusedReadsAreDropped: a forecast that is sure of what is never used holds no
// room with it, though it ranks it first.
func TestUnusedReadsAreDropped(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 8, TopK: 1}
	rows := make([][]int32, 60)
	for i := range rows {
		rows[i] = []int32{int32(i % 4), int32(i % 4), int32(i % 4)}
	}
	tr := handmade(t, shape, make([]int64, len(rows)), 0, rows...)
	m := newMemo(sure{}, passes.New(tr, passes.Options{}))
	// Twelve are used in turn and fit, four more are forecast for ever.
	s := setting{keep: "online", cache: 13, ratio: 0.25}
	without, with := count(t, tr, "online", s, m.predictor()), count(t, tr, "online+spec", s, m.predictor())
	if with.Wasted == 0 || with.ahead == 0 {
		t.Errorf("got %d speculative reads, %d wasted, want some of both", with.ahead, with.Wasted)
	}
	if with.misses > without.misses+12 {
		t.Errorf("got %d misses with speculation, %d without, want at most a cycle more", with.misses, without.misses)
	}
}

// sure is certain of expert 7 of each layer, and holds the others for likely.
type sure struct{}

func (sure) Name() string                 { return "sure" }
func (sure) NewHistory() router.History   { return sure{} }
func (sure) Begin(trace.Phase, []int32)   {}
func (sure) Observe(int, []router.Choice) {}

func (sure) Score(_ int, dst []float32) {
	for i := range dst {
		dst[i] = 0.25
	}
	dst[7] = 1
}
