// Package widen enlarges a small mixture-of-experts model in GGUF form without
// changing what it computes: the same tokens, the same choices of its routers,
// in experts of realistic size. It is how a model that fits a test stands in for
// one that does not fit memory.
//
// With width R and inner width S, both powers of two:
//
//	residual stream   x                 → x x … x            R times, one after another
//	embedding, norms  v                 → v v … v            as the stream
//	W reads it        [W]               → [W/R W/R … W/R]    each row, so that W x stays
//	W writes it       [W]               → W over W over W    all rows, R times
//	an inner width    up, gate: rows S times; down: rows of S parts, each divided by S
//
// The root mean square (and the mean) of a repeated vector is that of the vector,
// so norms and their epsilon stay. Attention heads, routers' outputs and the
// vocabulary keep their sizes; where llama.cpp wants queries as wide as the stream
// (Architectures), heads are repeated too. An output matrix that is tied to the
// embedding is written as a tensor of its own, since only one of them is divided.
//
// Tensors keep their type. Division by a power of two changes the numbers that
// scale a block, never its quanta: the exponent of a float. Where the exponent is
// too small for that, the copies of the number differ by one unit in its last
// place, so that they add up to it exactly: the enlarged model is the small one in
// exact arithmetic, and floating-point sums differ by their order only.
//
// Words: a side is what one dimension of a tensor stands for (stream, inner
// width, heads, or something that stays); a part is one of several vectors of a
// side that lie one after another (gate and up in a fused tensor).
//
// A Plan is immutable and safe for concurrent use. Nothing here keeps a file open
// after Write returns.
package widen
