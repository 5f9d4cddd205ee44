package router

import (
	"bytes"
	"fmt"
	"testing"

	"outrider/layout"
	"outrider/trace"
	"outrider/trace/synth"
)

// BenchmarkSave measures Save and Load of what each predictor learned of 3,000
// tokens with their ids, and reports the size of the file.
func BenchmarkSave(b *testing.B) {
	for _, shape := range []layout.Shape{{Layers: 24, Experts: 32, TopK: 4}, {Layers: 26, Experts: 64, TopK: 6}, {Layers: 48, Experts: 128, TopK: 8}} {
		r, err := synth.New(synth.Markov, synth.Options{Shape: shape, Tokens: 3000, Seed: 1})
		if err != nil {
			b.Fatal(err)
		}
		tr, err := trace.ReadAll(r, 0)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range Names() {
			p, err := New(name, shape)
			if err != nil {
				b.Fatal(err)
			}
			replay := NewHistories(p, tr, tr.Len())
			for i := range tr.Len() {
				h := replay.Begin(i)
				for l := range shape.Layers {
					h.Observe(l, replay.Choice(i, l))
				}
			}
			file := save(b, p)
			where := fmt.Sprintf("%dx%d/%s", shape.Layers, shape.Experts, name)
			b.Run(where+"/save", func(b *testing.B) {
				for b.Loop() {
					save(b, p)
				}
				b.ReportMetric(float64(len(file))/1e3, "file-kB")
			})
			b.Run(where+"/load", func(b *testing.B) {
				for b.Loop() {
					if _, err := Load(bytes.NewReader(file)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
