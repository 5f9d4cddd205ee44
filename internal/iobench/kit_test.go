package iobench

import (
	"testing"
	"time"

	"outrider/internal/device"
	"outrider/layout"
)

// modelled is a target on a drive that takes latency for a read and bandwidth for
// its bytes, inside the bubble that it is called in.
func modelled(t testing.TB, b Batch, m device.Model) *Target {
	t.Helper()
	shape, err := b.shapeFor(int64(b.Experts) * batchesOfLayer * leastLayers * b.RecordBytes)
	if err != nil {
		t.Fatal(err)
	}
	open := func(layout.FS) (layout.Source, error) {
		return device.NewRecords(device.RecordsOptions{Shape: shape,
			Bytes: func(int) int64 { return b.RecordBytes }, Drives: []*device.Drive{device.New(m)}})
	}
	target, err := NewTarget(nil, open)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

const (
	bandwidth = 1 << 30 // bytes a second
	latency   = 100 * time.Microsecond
)

var drive = device.Model{BytesPerSecond: bandwidth, Latency: latency}

// near reports whether got is within a share of want.
func near(got, want, share float64) bool { return got >= want*(1-share) && got <= want*(1+share) }

func find(t testing.TB, r *Result, name string) Row {
	t.Helper()
	for _, row := range r.Rows {
		if row.Name == name {
			return row
		}
	}
	t.Fatalf("no row %s", name)
	return Row{}
}

func value(t testing.TB, v *float64) float64 {
	t.Helper()
	if v == nil {
		t.Fatal("got null, want a figure")
	}
	return *v
}
