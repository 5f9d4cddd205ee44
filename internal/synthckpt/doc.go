// Package synthckpt writes small checkpoints that look like the published ones
// of a model family: its exact tensor names, shapes, types and side tensors, its
// metadata keys or config.json, and everything beside the experts, with made-up
// numbers. They are what tests of checkpoint readers read.
//
// A family is text, not code: the tables in families/ list its tensors, with
// sizes as expressions of a few numbers. parse.go describes their grammar. The
// same options give the same bytes on every machine.
//
// Words: a family has one or more blocks (transformer layers), each of one or
// more kinds ("dense", "moe"); a routed tensor belongs to experts that a router
// chooses from; a predicting block comes behind the others and guesses further
// tokens.
//
// Names and shapes were taken from the reference of this project and from public
// documentation (llama.cpp's model definitions and its name map, the weight maps
// of published models); numbers are not trained, so text is noise.
package synthckpt
