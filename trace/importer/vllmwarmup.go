package importer

import (
	"slices"

	"outrider/trace"
)

// rows are a pass's first row and the row after its last.
func (o *loggedLayer) rows(pass, topK int) (from, to int) {
	from, to = int(o.starts[pass]), len(o.ids)/topK
	if pass+1 < len(o.starts) {
		to = int(o.starts[pass+1])
	}
	return from, to
}

// emit tells the rows in order, without those of the warm-up, and then where
// layers differ in their passes.
func (v *vllmLog) emit(h trace.Header, out emitter) error {
	k := h.Shape.TopK
	a := trace.Activation{Token: -1}
	first := v.order[0]
	passes, differ := v.common(h)
	warm := v.warmUp(passes)
	for pass := warm; pass < passes; pass++ {
		from, to := first.rows(pass, k)
		for row := from; row < to; row++ {
			a.Experts, a.Weights = a.Experts[:0], a.Weights[:0]
			for _, o := range v.order {
				a.Experts = append(a.Experts, o.ids[row*k:row*k+k]...)
				if h.Weights {
					a.Weights = append(a.Weights, o.weights[row*k:row*k+k]...)
				}
			}
			if err := out(first.file, place{}, &a); err != nil {
				return err
			}
			a.Pos++
		}
	}
	if warm > 0 {
		_, rows := first.rows(warm-1, k)
		v.in.note("The first %d passes (%d rows) were left out as warm-up: in each, every layer chose the same for all rows.", warm, rows)
	}
	if a.Pos > 0 {
		v.in.note("The log has %d passes. Which sequence a row of a batch belongs to, and whether a pass is prefill or decode, is not told.", passes-warm)
	}
	if v.failed != nil {
		return v.failed
	}
	return differ
}

// common is how many passes at the start have as many rows in all layers, and
// what differs in the next.
func (v *vllmLog) common(h trace.Header) (int, error) {
	k, first := h.Shape.TopK, v.order[0]
	passes := len(first.starts)
	for _, o := range v.order {
		passes = min(passes, len(o.starts))
	}
	for pass := range passes {
		from, to := first.rows(pass, k)
		for l, o := range v.order {
			if f, t := o.rows(pass, k); t-f != to-from {
				return pass, o.file.damaged(place{}, "ragged: layer %d has %d rows in pass %d, but layer %d has %d: the layers are not of the same prompts",
					h.Shape.LayerID(l), t-f, pass, h.Shape.LayerID(0), to-from)
			}
		}
	}
	for l, o := range v.order {
		if len(o.starts) != len(first.starts) {
			return passes, o.file.damaged(place{}, "ragged: layer %d has %d passes, but layer %d has %d",
				h.Shape.LayerID(l), len(o.starts), h.Shape.LayerID(0), len(first.starts))
		}
	}
	return passes, nil
}

// warmUp is how many passes at the start are the engine's own, on made-up
// input: all rows of the pass are the same in every layer, ids and weights. One
// row alone is always so; it counts only if it is that of the pass before.
func (v *vllmLog) warmUp(passes int) int {
	for pass := range passes {
		for _, o := range v.order {
			from, to := o.rows(pass, v.meta.TopK)
			if to == from+1 {
				if pass == 0 {
					return 0
				}
				from--
			}
			if !v.alike(o, from, to) {
				return pass
			}
		}
	}
	return passes
}

// alike reports whether rows are all the same.
func (v *vllmLog) alike(o *loggedLayer, from, to int) bool {
	k := v.meta.TopK
	return periodic(o.ids[from*k:to*k], k) && periodic(o.weights[from*k:to*k], k)
}

// periodic reports whether s repeats every k elements.
func periodic[T comparable](s []T, k int) bool {
	return slices.Equal(s[:len(s)-k], s[k:])
}
