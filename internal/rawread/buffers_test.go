package rawread_test

import (
	"strings"
	"testing"

	"outrider/internal/rawread"
)

func TestBuffersAreUsedAgain(t *testing.T) {
	b, err := rawread.NewBuffers(2, 8192)
	if err != nil {
		t.Fatal(err)
	}
	w := watch(records(t, 10_000))
	for range 2 {
		got, err := rawread.Run(t.Context(), rawread.Options{Source: w, Experts: ids(4, 0, 4), Workers: 2, Block: 8192, Buffers: b})
		if err != nil || got.Bytes != 3*12288 {
			t.Errorf("got %+v, %v, want 3 experts", got, err)
		}
	}
	for _, more := range []rawread.Options{{Workers: 3, Block: 8192}, {Workers: 2, Block: 12288}} {
		more.Source, more.Buffers = w, b
		if _, err := rawread.Run(t.Context(), more); err == nil || !strings.Contains(err.Error(), "too few or too small") {
			t.Errorf("%d of %d bytes: got %v, want that they do not fit", more.Workers, more.Block, err)
		}
	}
	if b.Len() != 2 || b.Close() != nil || b.Close() != nil || b.Len() != 0 {
		t.Error("closing twice: want no error, and nothing left")
	}
	if _, err := rawread.Run(t.Context(), rawread.Options{Source: w, Experts: ids(0), Buffers: b}); err == nil {
		t.Error("closed buffers: got no error")
	}
}

func TestBuffersRefused(t *testing.T) {
	for _, c := range []struct {
		n     int
		bytes int64
	}{{0, 4096}, {-1, 4096}, {1025, 4096}, {1, 0}, {1, 4095}, {1, 5000}, {1024, 64 << 20}, {2, 1 << 62}} {
		if b, err := rawread.NewBuffers(c.n, c.bytes); err == nil {
			t.Errorf("%d of %d bytes: got %v, want an error", c.n, c.bytes, b)
		}
	}
}
