package refmodel

import "math"

// rope rotates the pairs (i, i+d/2) of a head by angles that grow with the
// position and fall with i: RoPE over halves, as NEOX and Qwen have it.
type rope struct {
	frequency []float64 // one a pair
	cos, sin  []float32 // [token of the pass][pair]
}

func newRope(headDim int, base float64) rope {
	r := rope{frequency: make([]float64, headDim/2)}
	for i := range r.frequency {
		r.frequency[i] = math.Pow(base, -2*float64(i)/float64(headDim))
	}
	return r
}

// prepare computes the angles of n tokens from position start on.
func (r *rope) prepare(start, n int) {
	half := len(r.frequency)
	r.cos, r.sin = resize(r.cos, n*half), resize(r.sin, n*half)
	for t := range n {
		for i, f := range r.frequency {
			sin, cos := math.Sincos(float64(start+t) * f)
			r.cos[t*half+i], r.sin[t*half+i] = float32(cos), float32(sin)
		}
	}
}

// rotate turns all heads in row, which belongs to token t of the pass.
func (r *rope) rotate(row []float32, t int) {
	half := len(r.frequency)
	cos, sin := r.cos[t*half:(t+1)*half], r.sin[t*half:(t+1)*half]
	for at := 0; at < len(row); at += 2 * half {
		low, high := row[at:at+half], row[at+half:at+2*half]
		for i, a := range low {
			b := high[i]
			low[i] = float32(a*cos[i]) - float32(b*sin[i])
			high[i] = float32(a*sin[i]) + float32(b*cos[i])
		}
	}
}
