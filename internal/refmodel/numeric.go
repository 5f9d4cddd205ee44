package refmodel

import "math"

// rmsNorm writes x, scaled to root mean square 1 and by weight, to y; they may
// be the same slice. The sum is kept in float64 as ggml does.
func rmsNorm(y, x, weight []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v * v)
	}
	scale := float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
	for i, v := range x {
		y[i] = v * scale * weight[i]
	}
}

// rmsNormRows norms each row of x, len(weight) wide, into y.
func rmsNormRows(y, x, weight []float32, eps float32) {
	width := len(weight)
	for at := 0; at < len(x); at += width {
		rmsNorm(y[at:at+width], x[at:at+width], weight, eps)
	}
}

// softmax turns scores into probabilities in place.
func softmax(x []float32) {
	most := float32(math.Inf(-1))
	for _, v := range x {
		most = max(most, v)
	}
	var sum float64
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v - most)))
		sum += float64(x[i])
	}
	scale := float32(1 / sum)
	for i := range x {
		x[i] *= scale
	}
}

// gate writes silu(g)*u to g.
func gate(g, u []float32) {
	for i, v := range g {
		g[i] = v / (1 + float32(math.Exp(-float64(v)))) * u[i]
	}
}

// accumulate adds scale*x to y.
func accumulate(y, x []float32, scale float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += float32(scale * v)
	}
}

// topK writes the indices of the largest values to best, largest first; of
// equals the lower index is first. NaN is never better than anything, so that
// best always holds distinct indices.
func topK(best []int32, values []float32) {
	for rank := range best {
		found := int32(-1)
		for i, v := range values {
			if contains(best[:rank], int32(i)) {
				continue
			}
			if found < 0 || v > values[found] || values[found] != values[found] && v == v {
				found = int32(i)
			}
		}
		best[rank] = found
	}
}

func contains(list []int32, v int32) bool {
	for _, have := range list {
		if have == v {
			return true
		}
	}
	return false
}

// resize gives s the length n, keeping its memory where it suffices; the contents are undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
