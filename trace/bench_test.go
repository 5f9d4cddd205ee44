package trace

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"outrider/layout"
)

// benchTrace has the shape of DeepSeek-V2-Lite: 26 layers of 64, top-6.
func benchTrace(b *testing.B, weights bool) *Trace {
	tr := skewed(b, layout.Shape{Layers: 26, Experts: 64, TopK: 6}, 5000, false)
	if !weights {
		tr.Header.Weights, tr.Weights = false, nil
	}
	return tr
}

func BenchmarkRead(b *testing.B) {
	ids, all := benchTrace(b, false), benchTrace(b, true)
	for _, bench := range []struct {
		name string
		data []byte
	}{
		{"binary/ids", binaryOf(b, ids)},
		{"binary/weights", binaryOf(b, all)},
		{"jsonl/ids", jsonlOf(b, ids)},
		{"jsonl/weights", jsonlOf(b, all)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var a Activation
			s, err := NewStream(bytes.NewReader(bench.data))
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(bench.data)) / 5000)
			b.ReportAllocs()
			for b.Loop() {
				err := s.Next(&a)
				if errors.Is(err, io.EOF) {
					b.StopTimer()
					if s, err = NewStream(bytes.NewReader(bench.data)); err == nil {
						err = s.Next(&a)
					}
					b.StartTimer()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	tr := benchTrace(b, true)
	w, err := NewWriter(io.Discard, tr.Header)
	if err != nil {
		b.Fatal(err)
	}
	j, err := NewJSONLWriter(io.Discard, tr.Header)
	if err != nil {
		b.Fatal(err)
	}
	for name, s := range map[string]Sink{"binary": w, "jsonl": j} {
		b.Run(name, func(b *testing.B) {
			var a Activation
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				tr.At(i%tr.Len(), &a)
				if err := s.Append(&a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHistory(b *testing.B) {
	tr := benchTrace(b, false)
	h := historyOf(b, tr)
	var saved bytes.Buffer
	if _, err := h.WriteTo(&saved); err != nil {
		b.Fatal(err)
	}
	b.Run("add", func(b *testing.B) {
		var a Activation
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			tr.At(i%tr.Len(), &a)
			if err := h.Add(&a); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("coactivation", func(b *testing.B) {
		fixed := historyOf(b, tr)
		for i := int32(0); b.Loop(); i++ {
			fixed.Coactivation(1, i%64, (i+7)%64)
		}
	})
	b.Run("parse", func(b *testing.B) {
		b.SetBytes(int64(saved.Len()))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseHistory(saved.Bytes()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Reading and writing must not allocate for each token.
func TestSteadyStateAllocations(t *testing.T) {
	tr := skewed(t, layout.Shape{Layers: 8, Experts: 64, TopK: 6}, 4000, false)
	var a Activation
	r, err := NewReader(bytes.NewReader(binaryOf(t, tr)))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(io.Discard, tr.Header)
	if err != nil {
		t.Fatal(err)
	}
	step := func() {
		if err := errors.Join(r.Next(&a), w.Append(&a)); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 { // frames and buffers reach their size
		step()
	}
	if got := testing.AllocsPerRun(3000, step); got > 0 {
		t.Errorf("Next and Append: got %v allocations a token, want 0", got)
	}
}
