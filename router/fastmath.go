package router

import "math"

// The approximations below are off by less than 2e-4 (log, absolute) and 5e-4
// (exp, relative), far under what a forecast from a few thousand passes is
// known to. They are several times faster than package math, which the budget
// of some microseconds a layer needs.

const ln2 = 0.6931471805599453

// fastLog is the natural logarithm of a positive, normal x.
func fastLog(x float32) float32 {
	bits := math.Float32bits(x)
	exponent := float32(int32(bits>>23) - 127)
	m := math.Float32frombits(bits&0x007fffff|0x3f800000) - 1.0 // 0 ≤ m < 1
	// Minimax polynomial of ln(1+m).
	poly := m * (0.99949556 + m*(-0.49190896+m*(0.28947478+m*(-0.13606275+m*0.03215845))))
	return exponent*ln2 + poly
}

// fastExp is e to the x, for x clamped to -80 … 80.
func fastExp(x float32) float32 {
	x = min(max(x, -80), 80) * (1 / ln2)
	whole := float32(int32(x))
	if whole > x {
		whole--
	}
	f := x - whole // 0 ≤ f < 1
	// Minimax polynomial of 2^f.
	poly := 0.99992807 + f*(0.69326099+f*(0.24261112+f*(0.05171774+f*0.01248245)))
	return math.Float32frombits(uint32(int32(whole)+127)<<23) * poly
}

// sigmoid turns log odds into a probability.
func sigmoid(z float32) float32 { return 1 / (1 + fastExp(-z)) }

// logOdds is the inverse of sigmoid, for p clamped to 1e-4 … 1-1e-4.
func logOdds(p float32) float32 {
	p = min(max(p, 1e-4), 1-1e-4)
	return fastLog(p / (1 - p))
}
