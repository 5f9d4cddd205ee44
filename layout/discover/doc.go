// Package discover finds the routed experts of a model among its tensors, by
// names, dimensions and what the model says of itself. It is pure: readers of
// formats (layout/gguf, layout/checkpoint) hand in lists and get a
// layout.Checkpoint, or an error that names the tensors it is about.
//
//	names ──▶ groups ──▶ stack ──▶ layers ──▶ records ──▶ orientation ──▶ routers, rest
//	what a     one tensor   of several  which are   every     fused order,    what stays
//	name says  per expert   models the  for this    expert    transposed      resident,
//	           or stacked   main one    pass        complete                  byte for byte
//
// Words: a stack is a run of numbered blocks under one prefix ("model.layers",
// "thinker.model.layers"); a role is what a tensor does in an expert (gate, up,
// gate and up in one, down); a side tensor (bias, scale, zero point) belongs to
// its role's weights; a part is one of several files' share of the same tensor;
// a block ahead predicts further tokens and is no part of a forward pass.
//
// Names are read segment by segment between dots, never by substrings, and the
// block number is the segment after a known word, wherever it stands. Two
// grammars are known: llama.cpp's (blk.N.ffn_gate_exps.weight, with the single
// experts of early files and of KTransformers' repack) and that of published
// models (layers.N.….experts.E.w1.weight and its many kin). What has a name
// like an expert's but fits no record is an error, never silently resident.
//
// Bytes are counted: experts, resident groups and what is left out are together
// all tensor bytes, or it is an error.
package discover
