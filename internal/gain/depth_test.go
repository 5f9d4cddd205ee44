package gain_test

import (
	"testing"

	"outrider/internal/gain"
	"outrider/layout"
	"outrider/layout/drive"
)

func TestDepthOf(t *testing.T) {
	p := &drive.Profile{Depth: 3}
	if got := gain.DepthOf(p, mib); got != 3 {
		t.Errorf("without cells: got depth %d, want the profile's 3", got)
	}
	for _, c := range []struct {
		block int64
		depth int
		rate  float64
	}{{64 * kib, 1, 100}, {64 * kib, 8, 700}, {64 * kib, 16, 720}, {64 * kib, 32, 710}, {mib, 1, 1900}, {mib, 2, 2000}, {mib, 8, 1500}} {
		p.Cells = append(p.Cells, drive.Cell{BlockBytes: c.block, Depth: c.depth, BytesPerSecond: c.rate})
	}
	for bytes, want := range map[int64]int{1: 8, 64 * kib: 8, 200 * kib: 8, 300 * kib: 1, mib: 1, 64 * mib: 1} {
		if got := gain.DepthOf(p, bytes); got != want {
			t.Errorf("reads of %d bytes: got depth %d, want %d", bytes, got, want)
		}
	}
}

func TestRecordBytes(t *testing.T) {
	layer := func(bytes ...int64) (l layout.CheckpointLayer) {
		for _, b := range bytes {
			l.Tensors = append(l.Tensors, layout.ExpertTensor{Projection: layout.Projection{Bytes: b}})
		}
		return l
	}
	cp := &layout.Checkpoint{Layers: []layout.CheckpointLayer{layer(1000, 3000), layer(8000)}}
	if got := gain.RecordBytes(cp); got != 6000 {
		t.Errorf("got %d bytes, want the mean of 4000 and 8000", got)
	}
	cp.Layers[0] = layer(9*mib, 9*mib)
	if got := gain.RecordBytes(cp); got != mib {
		t.Errorf("got %d bytes, want reads of 1 MiB", got)
	}
}
