// Package safetensors reads the headers of safetensors files, the form in which
// most models are published: the tensor table and the file's own metadata, never
// a byte of tensor data unless asked for one tensor. Open reads one file, OpenSet
// all files of a model, held against their index; Writer makes such files.
//
//	┌───────────────────┬──────────────────────────────┬─────────────────┐
//	│ n: u64, little-e. │ n bytes of JSON, one object  │ tensor data     │
//	└───────────────────┴──────────────────────────────┴─────────────────┘
//	└─────────────── read by Open ─────────────────────┘
//
//	{"__metadata__":{"format":"pt"}, "name":{"dtype":"BF16","shape":[256,64],"data_offsets":[0,32768]}, …}
//
// The object may be followed by spaces. data_offsets are the first byte and the
// one after the last, counted from the start of the tensor data. The tensors
// fill the data: no hole, no overlap, nothing behind the last. Numbers are
// little-endian, tensors in row-major order. (Specification: the README of
// github.com/huggingface/safetensors.)
//
// Files come from strangers. Open checks in this order: the length against its
// limit (100 MB, the format's own) and the file's size, that the header is one
// JSON object in UTF-8 without a name twice, then each tensor's size against its
// dtype and shape, then that the tensors fill the file. A dtype that is not
// known here is kept as it is called, with the size that its offsets tell.
// What is wrong is said by a *FormatError with the file, the place and one of
// the sentinels in errors.go.
//
// A File or a Set holds no file open and is immutable: safe for concurrent use,
// nothing to close.
package safetensors
