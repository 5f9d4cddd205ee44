// Package ggml reads the tensors that llama.cpp hands to its callbacks, and decides
// in a few instructions which of them Go is told of.
//
// struct ggml_tensor is public (ggml.h), but its layout is that of one version: Check
// compares what this package sees of a tensor with what the library's own functions
// say of it, so that another version is refused and not misread.
package ggml
