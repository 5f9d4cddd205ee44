// Package stream lets an unchanged llama.cpp run a mixture-of-experts model in less
// memory than its weights need: the experts come through Outrider's runtime.
//
//	Open      plan     which tensors of the GGUF hold routed experts, by role
//	          runtime  a stack of address space for each layer, experts at fixed places
//	          place    llama.cpp's tensors point into the stacks; dense weights are loaded
//	Decoder   pass     a batch of tokens goes through llama_decode
//	          chosen   a layer's router has chosen: its experts are brought while the
//	                   graph waits, and held until the next layer's router has chosen
//	          cut      a batch that needs more experts of a layer than fit is cut
//
// Nothing of llama.cpp is changed, and no weight is converted or copied: a stacked
// tensor of ggml is an address and a stride (ggml_tensor.data and nb[2]), and so is
// runtime.Stack.
package stream
