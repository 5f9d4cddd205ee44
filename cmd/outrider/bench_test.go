package main

import (
	"runtime"
	"testing"
)

// BenchmarkDemo is the demo as a user runs it: what the outrider arm has of the
// demand arm's exposed stall, and how many points of hits it has more.
func BenchmarkDemo(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + readingProcs)) // as main does
	var stall, warmUp, hits []float64
	for b.Loop() {
		s := decode[demoSummary](b, "demo", "--dir", b.TempDir())
		if !s.TextEqual {
			b.Fatal("the arms wrote different texts")
		}
		stall = append(stall, s.StallRatio)
		warmUp = append(warmUp, s.WarmUpStallRatio)
		hits = append(hits, s.HitsGain)
	}
	b.ReportMetric(median(stall), "stall-ratio")
	b.ReportMetric(median(warmUp), "warm-up-stall-ratio")
	b.ReportMetric(median(hits), "hits-gain-points")
}
