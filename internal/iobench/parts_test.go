package iobench

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"outrider/internal/device"
	"outrider/layout"
)

func TestHistogramQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 20_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		h.add(d)
		all = append(all, d)
	}
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.99, 0.999} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		if got := h.quantile(q); !near(float64(got), float64(want), 0.01) {
			t.Errorf("quantile %v: got %v, want %v", q, got, want)
		}
	}
	for _, d := range []time.Duration{-1, 0, 1, 63, 64, 127, 128, time.Hour, 1<<63 - 1} {
		if got := middle(bucketOf(d)); !near(float64(got), float64(max(d, 0)), 0.008) {
			t.Errorf("%d: its bucket stands for %d", d, got)
		}
	}
	if new(histogram).quantile(0.5) != 0 {
		t.Error("a quantile of nothing: want 0")
	}
}

func TestPicksRepeatNoneOfTheRecent(t *testing.T) {
	const experts, recent = 40, 16
	p := newPicks(experts, recent, 7)
	var drawn []int32
	counts := make([]int, experts)
	for i := range 40_000 {
		e := p.next()
		if from := max(i-recent, 0); slices.Contains(drawn[from:], e) {
			t.Fatalf("draw %d: %d again after %v", i, e, drawn[from:])
		}
		drawn = append(drawn, e)
		counts[e]++
	}
	for e, n := range counts {
		if !near(float64(n), 40_000/experts, 0.15) {
			t.Errorf("expert %d was drawn %d times, want about as often as any", e, n)
		}
	}
}

func TestBatchText(t *testing.T) {
	for _, b := range append(DefaultBatches(), Batch{3, 12345}, Batch{1, 2 << 30}) {
		var got Batch
		if err := got.UnmarshalText([]byte(b.String())); err != nil || got != b {
			t.Errorf("%v: got %v, %v, want the same", b, got, err)
		}
	}
	if got := (Batch{8, 4 << 20}).String(); got != "8x4MiB" {
		t.Errorf("got %q, want 8x4MiB", got)
	}
	for _, bad := range []string{"", "8", "x4MiB", "8x", "0x4MiB", "8x0", "-1x4MiB", "8x-4MiB", "8x4MB", "8x99999999999GiB", "8x4MiBx"} {
		var b Batch
		if err := b.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, b)
		}
	}
}

func TestShapes(t *testing.T) {
	for _, b := range append(DefaultBatches(), Batch{1, 1}, Batch{64, 4096}) {
		least := int64(b.Experts) * batchesOfLayer * leastLayers * b.RecordBytes
		for _, bytes := range []int64{least, 2 << 30, 1 << 40} {
			shape, err := b.shapeFor(max(bytes, least))
			if err != nil {
				t.Fatal(err)
			}
			if err := shape.Validate(); err != nil {
				t.Errorf("%v in %d bytes: %v", b, bytes, err)
			}
			if got := int64(shape.Count()) * b.RecordBytes; got > max(bytes, least) {
				t.Errorf("%v in %d bytes: got %d bytes", b, bytes, got)
			}
		}
		if _, err := b.shapeFor(least - 1); err == nil {
			t.Errorf("%v in %d bytes: got no error, want that it is too small", b, least-1)
		}
	}
}

func TestPlanTellsTheForecastButOne(t *testing.T) {
	shape := layout.Shape{Layers: 3, Experts: 20, TopK: 4}
	p := newPlan(&Target{Shape: shape, Batch: Batch{4, 4096}}, 2)
	h := p.NewHistory()
	scores := make([]float32, shape.Experts)
	named := func(layer int) (ids []int32) {
		h.Score(layer, scores)
		for e, s := range scores {
			if s > 0 {
				ids = append(ids, int32(e))
			}
		}
		return ids
	}
	for _, pass := range []int32{1, 2, 700, 10_000} {
		h.Begin(0, []int32{pass})
		for layer := range shape.Layers {
			want := slices.Sorted(slices.Values(p.at(pass, layer)[1:]))
			if got := named(layer); !slices.Equal(got, want) {
				t.Errorf("pass %d layer %d: got %v, want %v", pass, layer, got, want)
			}
			h.Observe(layer, nil)
			want = slices.Sorted(slices.Values(p.at(pass+1, layer)[1:]))
			if got := named(layer); !slices.Equal(got, want) {
				t.Errorf("after pass %d layer %d: got %v, want the next pass's %v", pass, layer, got, want)
			}
		}
	}
}

func TestSumsAreLeftOut(t *testing.T) {
	src, err := device.NewRecords(device.RecordsOptions{Shape: layout.Shape{Layers: 1, Experts: 2, TopK: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var with, without layout.Placement
	id := layout.ExpertID{Index: 1}
	if err := src.Locate(id, &with); err != nil {
		t.Fatal(err)
	}
	if err := withoutSums(src).Locate(id, &without); err != nil {
		t.Fatal(err)
	}
	for i := range with.Parts {
		if !with.Parts[i].Summed || without.Parts[i].Summed || with.Parts[i].At != without.Parts[i].At {
			t.Errorf("part %d: got %+v, and %+v without sums", i, with.Parts[i], without.Parts[i])
		}
	}
	if err := withoutSums(src).Locate(layout.ExpertID{Layer: 9}, &without); err == nil {
		t.Error("an unknown expert: got no error")
	}
}

// Bytes that were put where they are lent by anything else than a read are found.
func TestCoveredByReads(t *testing.T) {
	w := &watched{spans: []span{{300, 400}, {100, 200}, {200, 250}}}
	for _, c := range []struct {
		span span
		want bool
	}{{span{100, 200}, true}, {span{120, 240}, true}, {span{100, 251}, false}, {span{90, 110}, false}, {span{240, 310}, false}, {span{310, 400}, true}, {span{500, 600}, false}} {
		if got := w.covered(c.span); got != c.want {
			t.Errorf("%v: got %v, want %v", c.span, got, c.want)
		}
	}
	if w.forget(); w.covered(span{100, 200}) {
		t.Error("after forgetting: got that it is covered still")
	}
}

func TestNewTargetRefuses(t *testing.T) {
	for _, shape := range []layout.Shape{{Layers: 1, Experts: 8, TopK: 8}, {Layers: 1, Experts: 23, TopK: 8}, {Layers: 2, Experts: 15, TopK: 8}} {
		_, err := NewTarget(nil, func(layout.FS) (layout.Source, error) {
			return device.NewRecords(device.RecordsOptions{Shape: shape})
		})
		if err == nil {
			t.Errorf("%+v: got no error, want that there is nothing to read", shape)
		}
	}
}
