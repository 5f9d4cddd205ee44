package iobench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
	"outrider/layout"
)

// small is what the modelled runs read: a batch takes half a millisecond.
var small = []Batch{{8, 64 << 10}, {6, 32 << 10}}

func options(t testing.TB, batches ...Batch) Options {
	var targets []*Target
	for _, b := range batches {
		targets = append(targets, modelled(t, b, drive))
	}
	return Options{Targets: targets, Raw: NewOwn(nil, "modelled", nil), Duration: 2 * time.Second, HitUses: 2000}
}

// On a modelled drive every figure is known beforehand: the raw reader gets the
// bandwidth, a batch waits for one latency and its bytes, and a pipeline for its
// bytes alone.
func TestFiguresOfAModelledDrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options(t, small...)
		var last [2]int64
		o.Progress = func(done, total int64) { last = [2]int64{done, total} }
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !near(r.RawBytesPerSecond, bandwidth, 0.02) || r.Raw.Reader != "own loop, modelled" || !near(r.Raw.Drift, 1, 0.02) {
			t.Errorf("raw: got %+v, want the drive's %d bytes a second, and no drift", r.Raw, bandwidth)
		}
		if last[0] != last[1] || last[0] == 0 {
			t.Errorf("progress ended at %d of %d, want at its end", last[0], last[1])
		}
		for _, b := range small {
			one := float64(b.RecordBytes) / bandwidth
			all := float64(b.Experts) * one
			batch, single := latency.Seconds()+all, latency.Seconds()+one
			for _, want := range []struct {
				name  string
				share float64
				p50   float64
			}{
				{"batch-" + b.String(), all / batch, batch},
				{"batch-" + b.String() + "+crc", all / batch, batch},
				{"batch-" + b.String() + "+ahead", 1, all},
				{"single-" + sizeName(b.RecordBytes), one / single, single},
			} {
				row := find(t, r, want.name)
				if got := value(t, row.ShareOfRaw); !near(got, want.share, 0.03) {
					t.Errorf("%s: got a share of %.3f, want %.3f", want.name, got, want.share)
				}
				if got := value(t, row.P50); !near(got, want.p50*1e6, 0.03) {
					t.Errorf("%s: got a p50 of %.1f µs, want %.1f", want.name, got, want.p50*1e6)
				}
				if row.Ops >= enough != (row.P999 != nil) || row.P999 == nil == (row.Note == "") {
					t.Errorf("%s: got p99.9 %v with note %q for %d operations", want.name, row.P999, row.Note, row.Ops)
				}
			}
		}
		checkOthers(t, r)
	})
}

// checkOthers looks at the rows that are not of a batch.
func checkOthers(t *testing.T, r *Result) {
	alone, mixed := find(t, r, "mixed-alone"), find(t, r, "mixed-demand")
	one := (latency.Seconds() + float64(small[1].RecordBytes)/bandwidth) * 1e6
	if got := value(t, alone.P99); !near(got, one, 0.03) {
		t.Errorf("mixed-alone: got a p99 of %.1f µs, want that of one read, %.1f", got, one)
	}
	if value(t, mixed.BytesPerSecond) < 2*value(t, alone.BytesPerSecond) {
		t.Errorf("mixed-demand: got %.0f bytes a second, alone %.0f: want the forecast's reads beside", *mixed.BytesPerSecond, *alone.BytesPerSecond)
	}
	if got := value(t, mixed.P99OverAlone); got < 0.9 || got > 2 {
		t.Errorf("mixed-demand: got a p99 %.2f times that alone, want little more than that of small reads before it", got)
	}
	for _, name := range []string{"hits", "hits+forecast"} {
		if row := find(t, r, name); row.Ops != 1000 || row.ShareOfRaw != nil || row.CPUSecondsOfGiB != nil || row.P50 == nil {
			t.Errorf("%s: got %+v, want 1000 uses and no share", name, row)
		}
	}
	if r.Copies.Checked == 0 || r.Copies.Copied != 0 {
		t.Errorf("got %d of %d projections copied, want none of some", r.Copies.Copied, r.Copies.Checked)
	}
	if w := find(t, r, "writes"); w.Writes != nil && (w.Writes.Uses < 2000 || w.Ops != w.Writes.Uses) {
		t.Errorf("writes: got %+v, want all uses counted", w.Writes)
	}
	if r.Direct || len(r.Warnings) == 0 {
		t.Errorf("got direct %v and warnings %v, want that memory was read", r.Direct, r.Warnings)
	}
}

// A batch never finds an expert in memory, whatever the shape: a hit would be taken
// for a fast read.
func TestBatchesAreReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, shape := range []layout.Shape{{Layers: 1, Experts: 24, TopK: 8}, {Layers: 2, Experts: 16, TopK: 8}, {Layers: 5, Experts: 7, TopK: 3}, {Layers: 3, Experts: 8, TopK: 8}} {
			target, err := NewTarget(nil, func(layout.FS) (layout.Source, error) {
				return device.NewRecords(device.RecordsOptions{Shape: shape, Drives: []*device.Drive{device.New(drive)}})
			})
			if err != nil {
				t.Fatal(err)
			}
			o, err := Options{Targets: []*Target{target}, Raw: NewOwn(nil, "", nil)}.withDefaults()
			if err != nil {
				t.Fatal(err)
			}
			r, err := newRunner(target, o.FS, o.Runtime, asItIs)
			if err != nil {
				t.Fatal(err)
			}
			for range 200 {
				if _, err := r.batch(target.Experts)(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if s := r.rt.Stats(); s.Hits != 0 || s.Lookups != int64(200*shape.TopK) {
				t.Errorf("%+v: got %d hits of %d, want none of %d", shape, s.Hits, s.Lookups, 200*shape.TopK)
			}
			if err := r.close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// failing is a raw reader that fails after some slices.
type failing struct {
	Raw
	left int
	err  error
}

func (f *failing) Read(ctx context.Context, t *Target, depths []int, d time.Duration) ([]Slice, error) {
	if f.left--; f.left < 0 {
		return nil, f.err
	}
	return f.Raw.Read(ctx, t, depths, d)
}

func TestRunEndsWithTheFirstError(t *testing.T) {
	bad := errors.New("bad drive")
	for _, after := range []int{0, tuneTries, tuneTries + 1, tuneTries + 2} {
		synctest.Test(t, func(t *testing.T) {
			o := options(t, small[1])
			o.Raw = &failing{Raw: o.Raw, left: after, err: bad}
			if _, err := Run(t.Context(), o); !errors.Is(err, bad) {
				t.Errorf("after %d raw slices: got %v, want %v", after, err, bad)
			}
		}) // a goroutine left behind would fail the bubble
	}
}

func TestContextEndsARun(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 400 * time.Millisecond, 700 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			o := options(t, small[1])
			time.AfterFunc(after, func() { cancel(cause) })
			began := time.Now()
			if _, err := Run(ctx, o); !errors.Is(err, cause) {
				t.Errorf("after %v: got %v, want %v", after, err, cause)
			}
			if took := time.Since(began); took > after+50*time.Millisecond {
				t.Errorf("after %v: ended only after %v", after, took)
			}
		})
	}
}

// A drive that fails a read fails the run, and the error names the place.
func TestFailedReadEndsARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("bad sector")
		o := options(t, small[1])
		broken := modelled(t, small[1], device.Model{Rule: device.Fail(1, bad, 1)})
		o.Targets[0].Open = broken.Open
		if _, err := Run(t.Context(), o); !errors.Is(err, bad) {
			t.Errorf("got %v, want %v", err, bad)
		}
	})
}

func TestOptionsRefused(t *testing.T) {
	o := options(t, small[1])
	for name, bad := range map[string]Options{
		"targets": {Raw: o.Raw}, "raw": {Targets: o.Targets},
		"short": {Targets: o.Targets, Raw: o.Raw, Duration: time.Millisecond},
		"long":  {Targets: o.Targets, Raw: o.Raw, Duration: 2 * time.Hour},
		"uses":  {Targets: o.Targets, Raw: o.Raw, HitUses: -1},
	} {
		if _, err := Run(t.Context(), bad); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestTimeIsSharedOut(t *testing.T) {
	for _, d := range []time.Duration{time.Second, 20 * time.Second, time.Minute, time.Hour} {
		o := Options{Targets: make([]*Target, 3), Duration: d}
		n, unit := o.rounds()
		all := time.Duration(n)*time.Duration(float64(unit)*(3*targetUnits+mixedUnits)) + 3*time.Duration(len(tuneDepths))*tuneTries*o.tuneTime()
		if n < 1 || n > mostRounds || !near(all.Seconds(), d.Seconds(), 0.01) {
			t.Errorf("%v: got %d rounds and %v in all, want the time that was given", d, n, all)
		}
	}
}

func TestBestDepth(t *testing.T) {
	rate := func(bytes int64) Slice { return Slice{Bytes: bytes, Took: time.Second} }
	// Once through the depths each; one slice of depth 4 is a fluke.
	tries := []Slice{rate(10), rate(99), rate(30), rate(20), rate(5), rate(11), rate(12), rate(31), rate(20), rate(5), rate(10), rate(13), rate(32), rate(20), rate(5)}
	if got := bestDepth(tries); got != 8 {
		t.Errorf("got depth %d, want 8", got)
	}
}

func TestMedianAndSpread(t *testing.T) {
	values := []float64{3, 1, 2, 9}
	least, most := spread(values)
	if median(values) != 2 || least != 1 || most != 9 || median(nil) != 0 {
		t.Errorf("got %v, %v to %v, and %v of none; want 2, 1 to 9, 0", median(values), least, most, median(nil))
	}
	if !slices.Equal(values, []float64{3, 1, 2, 9}) {
		t.Error("the values were changed")
	}
}
