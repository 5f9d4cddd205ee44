// Package ggufwrite writes small GGUF v3 files, little-endian: checkpoints for
// tests and synthetic models. What it is given it writes: the order of keys and
// tensors is the order of the calls, so equal calls give equal bytes, and
// nothing is checked beyond what the file's own structure needs, so that tests
// can write wrong files too.
//
// It imports nothing of this module; a tensor's type is ggml's number
// (uint32(gguf.Q8_0)).
package ggufwrite
