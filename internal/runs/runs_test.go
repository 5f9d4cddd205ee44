package runs

import (
	"errors"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

func TestEveryNameMakesItsPolicies(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 8, TopK: 2}
	tr, err := trace.NewTrace(trace.Header{Model: "m", Shape: shape})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(Names(), "oracle", "oracle+spec", "decayed+next") {
		r, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		order, err := r.NewOrder(shape)
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.NewPredictor(shape, tr)
		if err != nil {
			t.Fatal(err)
		}
		if ranked := order != nil || p != nil || r.Keep == Optimum; !ranked {
			t.Errorf("%s: got nothing that ranks", name)
		}
		if r.Speculate != strings.Contains(name, "+") || (r.Speculate && p == nil) {
			t.Errorf("%s: got speculation %v by %v", name, r.Speculate, p)
		}
		if r.Bound() != (r.Next || name == "optimum" || strings.HasPrefix(name, "oracle")) {
			t.Errorf("%s: got bound %v", name, r.Bound())
		}
	}
}

func TestUnknownNames(t *testing.T) {
	for _, name := range []string{"", "fifo", "lru+next", "optimum+spec", "online+", "online+spec+next", "+spec", "recency"} {
		if _, err := Parse(name); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "least-stale") {
			t.Errorf("%q: got %v, want ErrUnknown and the names there are", name, err)
		}
	}
}
