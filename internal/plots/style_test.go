package plots

import (
	"math"
	"testing"

	"gonum.org/v1/plot/vg"
)

func TestStyles(t *testing.T) {
	alone, all := stylesOf([]string{"online+spec"}), stylesOf(allRuns)
	if alone["online+spec"].line.Color != all["online+spec"].line.Color {
		t.Error("online+spec has another colour when it is alone, want the same in every picture")
	}
	if all["online"].line.Color != all["online+spec"].line.Color || all["online"].marker != all["online+spec"].marker {
		t.Error("online and online+spec differ in colour or marker, want one family to share them")
	}
	colors := map[any]string{}
	for _, run := range allRuns {
		if kindOf(run) != keeps {
			continue
		}
		if other, ok := colors[all[run].line.Color]; ok {
			t.Errorf("%s and %s have the same colour, want eight families apart", run, other)
		}
		colors[all[run].line.Color] = run
	}
}

func TestStrangersTakeFreeColors(t *testing.T) {
	runs := []string{"mmap", "lru", "demand", "mmap+spec"}
	s := stylesOf(runs)
	if s["lru"].line.Color != palette[0] {
		t.Errorf("lru: got colour %v, want its own %v", s["lru"].line.Color, palette[0])
	}
	if a, b, l := s["mmap"].line.Color, s["demand"].line.Color, s["lru"].line.Color; a == b || a == l || b == l {
		t.Errorf("got colours %v, %v and %v, want three", a, b, l)
	}
	if s["mmap"].line.Color != s["mmap+spec"].line.Color {
		t.Error("mmap and mmap+spec differ in colour, want one family to share it")
	}
	many := make([]string, 0, maxRuns)
	for i := range maxRuns {
		many = append(many, string(rune('a'+i)))
	}
	if got := len(stylesOf(many)); got != maxRuns { // more than there are colours
		t.Errorf("got %d styles, want %d", got, maxRuns)
	}
}

func TestKinds(t *testing.T) {
	for run, want := range map[string]kind{
		"lru": keeps, "online": keeps, "mmap": keeps, "+": keeps, "online+spec": reads, "lru+spec": reads,
		"optimum": bounds, "online+next": bounds, "oracle": bounds, "oracle+spec": bounds,
	} {
		if got := kindOf(run); got != want {
			t.Errorf("%s: got kind %d, want %d", run, got, want)
		}
	}
}

func TestMarkersAreClosed(t *testing.T) {
	for _, m := range markers {
		var p vg.Path
		m.add(&p, vg.Point{X: 10, Y: 10})
		if len(p) < 3 || p[0].Type != vg.MoveComp || p[len(p)-1].Type != vg.CloseComp {
			t.Errorf("%+v: got path %v, want one that starts and closes", m, p)
		}
		for _, part := range p[:len(p)-1] {
			if d := math.Hypot(float64(part.Pos.X-10), float64(part.Pos.Y-10)); d > 4.5 {
				t.Errorf("%+v: got a corner %v points away, want it near", m, d)
			}
		}
	}
}
