// Package export turns a store back into the expert tensors of the checkpoint that it
// was built from: the same names, types, dimensions and bytes, as GGUF or safetensors,
// whichever they came from. Other tensors of the model are not in a store and not in
// what is exported.
//
// One goroutine writes, in the order of the files; several read ahead of it, so that
// both devices have work. All are joined before Export returns. There are no locks.
package export
