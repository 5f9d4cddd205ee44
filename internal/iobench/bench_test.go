package iobench

import (
	"testing"

	"outrider/layout"
	"outrider/runtime"
)

// BenchmarkBatch is one batch after the other, as in the arm of that name, for
// profiles: go test -run '^$' -bench Batch -cpuprofile cpu.out ./internal/iobench. The
// files lie in the temporary folder, which should be on a drive.
func BenchmarkBatch(b *testing.B) {
	for _, batch := range []Batch{{8, 1 << 20}, {6, 256 << 10}} {
		b.Run(batch.String(), func(b *testing.B) {
			s, err := Plan(StoresOptions{Batches: []Batch{batch}, Bytes: 64 << 20, Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			targets, err := s.Make(b.Context(), nil)
			if err != nil {
				b.Fatal(err)
			}
			r, err := newRunner(targets[0], layout.OS(), runtime.Options{}, withoutSums)
			if err != nil {
				b.Fatal(err)
			}
			defer r.close()
			op := r.batch(batch.Experts)
			for range 20 {
				if _, err := op(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(batch.Experts) * batch.RecordBytes)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := op(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
