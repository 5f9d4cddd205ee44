// Package llama loads an unchanged llama.cpp and the models that it runs, without cgo:
// stock, or with tensors whose memory is the caller's.
//
//	lib    the shared libraries, their version checked
//	build  a model from a GGUF header: the caller gives each tensor its weights
//	model  vocabulary and properties
//	context  decoding, the tokens kept of each sequence, threads
//
// The calls are yzma's (github.com/hybridgroup/yzma); this package adds those that it
// has not, and says what went wrong in llama.cpp's own words.
package llama
