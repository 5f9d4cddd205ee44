// Package dequant turns rows of ggml's tensor types into float32, with the same
// bits as ggml's own dequantize_row functions for every block whose scales are
// finite. Plain Go, no allocation, no goroutines; safe for concurrent use.
//
// A row is a whole number of blocks. Multiply and add are kept apart by
// explicit float32 conversions, so that no platform fuses them and results do
// not depend on the processor.
package dequant
