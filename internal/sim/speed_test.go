package sim

import (
	"testing"

	"outrider/internal/testtrace"
)

// BenchmarkSpeed replays 30,000 tokens of 26 layers, top 6, as the README states.
func BenchmarkSpeed(b *testing.B) {
	tr := testtrace.Shared(b, "traces/deepseek-v2-lite-chat.jsonl.gz", 30000)
	for _, run := range []string{"lru", "optimum", "online", "online+spec"} {
		b.Run(run, func(b *testing.B) {
			for b.Loop() {
				simulate(b, tr, run, Options{CacheShare: 0.25})
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/run")
		})
	}
}
