// Package refmodel is a small runner of Qwen3-MoE models (GGUF architecture
// "qwen3moe") in plain Go. It is a reference, not a fast engine: it shows how a
// runner embeds the runtime, and proves that a model whose experts are streamed
// computes what the same model computes resident. It has one goroutine, holds
// the dense weights as float32, and keeps activations in float32 throughout,
// where llama.cpp rounds them to the weights' type.
//
//	text ─Tokenizer─▶ tokens ─Generator─▶ passes: the prompt, then token by token
//
//	a pass:  embedding                    ── Step(phase, tokens) ─▶ runtime
//	         each block:
//	           norm ▸ attention over the cache ▸ add
//	           norm ▸ router ▸ top-k      ── Lookahead(layer, hidden), then
//	                                         Use(layer, choices) ─▶ runtime
//	             down(silu(gate·x)·(up·x)) ◀─ Ready: expert by expert, as read
//	             kept by (token, rank), summed in rank order ▸ add
//	         norm ▸ output ▸ logits ─Sampler─▶ next token
//
// Words: a pass is one run over all blocks, of a chunk of the prompt or of one
// decoded token. A slot is the place of one expert's output for one token, by
// rank in the router's choice.
//
// Results depend on the weights and the tokens only: not on the order in which
// experts arrive, the budget, the chunk, or the address of the weights. Each
// output is one dot product over one token's row, and sums have a fixed order.
// Between machines the last bits may differ, as kernels do.
//
// Who owns what: a Model is immutable and shared; a Generator owns its
// sequence (cache, session, buffers) and belongs to one goroutine; expert
// weights belong to the runtime, are read in place, and go back as soon as they
// are computed. There are no locks.
package refmodel
