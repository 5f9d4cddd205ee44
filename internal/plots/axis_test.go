package plots

import (
	"math"
	"testing"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

func TestStallTicks(t *testing.T) {
	for _, most := range []float64{0, 1e-9, 0.009, 0.01, 0.0123, 0.1, 0.3, 0.323, 0.614, 0.99, 1, 1.01, 1.23, 2.45, 5, 7.7, 10, 99, 100, 12345, maxFigure} {
		ticks, top := stallTicks(most)
		if top < most || most > 0.01 && top > 1.6*most {
			t.Errorf("%v: got an axis up to %v, want little more", most, top)
		}
		if len(ticks) < 4 || len(ticks) > 8 || ticks[0].Value != 0 || math.Abs(ticks[len(ticks)-1].Value-top) > 1e-9*top {
			t.Errorf("%v: got ticks %v, want a few from 0 to %v", most, ticks, top)
		}
		labels := map[string]bool{}
		for _, tick := range ticks {
			if labels[tick.Label] || len(tick.Label) > 8 {
				t.Errorf("%v: got label %q twice or long, want each short and once", most, tick.Label)
			}
			labels[tick.Label] = true
		}
	}
}

func TestShareTicksKeepTheirDistance(t *testing.T) {
	shares := []float64{0.1, 0.11, 0.12, 0.5, 0.9}
	axis := plot.Axis{Min: 0, Max: 1, Scale: plot.LinearScale{}}
	for _, c := range []struct {
		length float64
		want   string
	}{
		{3000, "10 %|11 %|12 %|50 %|90 %|"},
		{200, "10 %|||50 %|90 %|"},
		{30, "10 %||||90 %|"},
	} {
		got := ""
		for _, tick := range shareTicks(&axis, shares, vg.Length(c.length)) {
			got += tick.Label + "|"
		}
		if got != c.want {
			t.Errorf("%v points: got %s, want %s", c.length, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	for _, c := range []struct {
		v      float64
		digits int
		want   string
	}{
		{0, 3, "0"}, {12.5, 3, "12.5"}, {33.3333, 3, "33.3"}, {100, 3, "100"}, {0.30000000000000004, 6, "0.3"},
		{12500, 3, "12500"}, {1e9, 4, "1e+09"}, {1e-7, 3, "1e-07"}, {0.00012, 3, "0.00012"},
	} {
		if got := number(c.v, c.digits); got != c.want {
			t.Errorf("%v to %d digits: got %s, want %s", c.v, c.digits, got, c.want)
		}
	}
}

func TestLogarithmic(t *testing.T) {
	for _, c := range []struct {
		shares []float64
		want   bool
	}{
		{[]float64{0.25}, false},
		{[]float64{0.1, 0.9}, false},
		{[]float64{0.125, 0.25, 0.375, 0.5, 0.75}, false},
		{[]float64{0.03, 0.06, 0.12, 0.25, 0.5, 1}, true},
		{[]float64{0.1, 0.5, 0.97, 0.98, 1}, false}, // crowded at the other end
	} {
		f := &figure{shares: c.shares}
		if got := f.logarithmic(); got != c.want {
			t.Errorf("%v: got %v, want %v", c.shares, got, c.want)
		}
	}
}

func TestClean(t *testing.T) {
	for s, want := range map[string]string{"": "", " a\tb\n": "a b", "a\x00b": "a b", "ok\xff": "ok\uFFFD", "é ÷": "é ÷"} {
		if got := clean(s); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	}
}

func TestFit(t *testing.T) {
	style := textStyle(10, ink)
	for _, s := range []string{"short", "a text that is too long for its room", ""} {
		got := fit(s, style, 80)
		if style.Width(got) > 80 {
			t.Errorf("%q: got %q, %v wide, want at most 80", s, got, style.Width(got))
		}
		if style.Width(s) <= 80 && got != s {
			t.Errorf("%q: got %q, want it whole", s, got)
		}
	}
	if got := fit("wide", style, 1); got != "…" {
		t.Errorf("got %q, want only the ellipsis where nothing fits", got)
	}
}
