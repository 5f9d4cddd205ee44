package costs_test

import (
	"testing"
	"time"

	"outrider/internal/costs"
	"outrider/prefetcher"
	"outrider/runtime"
)

func TestFiguresOfWhatTokensTook(t *testing.T) {
	before := runtime.Stats{
		Tokens: 5, Lookups: 100, Hits: 90, Stall: time.Second,
		Reads: prefetcher.Stats{DemandReads: 7, DemandBytes: 700, Issued: 3, SpeculativeBytes: 300, Useful: 1, Late: 2, Wasted: 3, Displaced: 4},
	}
	after := runtime.Stats{
		Tokens: 15, Lookups: 140, Hits: 120, Stall: time.Second + 50*time.Microsecond,
		Reads: prefetcher.Stats{DemandReads: 27, DemandBytes: 2700, Issued: 8, SpeculativeBytes: 1300, Useful: 12, Late: 14, Wasted: 16, Displaced: 18},
	}
	cost := costs.Between(before, after, 2*time.Second)
	want := costs.Figures{
		Tokens: 10, TokensPerSecond: 5, StallPerToken: 5, Hits: 0.75, BytesPerToken: 300,
		DemandReadsPerToken: 2, SpeculativeReadsPerToken: 0.5, Useful: 11, Late: 12, Wasted: 13, Displaced: 14,
	}
	if got := cost.Figures(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}

	cost.Add(cost)
	want.Tokens, want.Useful, want.Late, want.Wasted, want.Displaced = 20, 22, 24, 26, 28
	if got := cost.Figures(); got != want {
		t.Errorf("twice that: got %+v, want the same of each token, and sums of %+v", got, want)
	}
	if got := costs.Between(after, after, 0).Figures(); got != (costs.Figures{}) {
		t.Errorf("no tokens: got %+v, want nothing", got)
	}
}
