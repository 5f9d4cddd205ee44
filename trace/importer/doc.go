// Package importer reads routing data in the forms that other tools write, and
// our own, through one door: Open tells the form by content.
//
//	file(s) ─ decompress ─ which form? ─┬─ tokens in order ─ checked ─ trace.Stream
//	                                    └─ counts only ─────────────── trace.Histogram
//
// docs/trace-forms.md lists the forms: who writes each, its exact schema, and what it
// cannot tell. What a form cannot tell (phase, sequences, gate weights, rank order,
// logical or physical ids) is recorded as unknown in the header, never guessed;
// what it does not even tell about the model (say, how many experts a layer has)
// must be given in Options, and its absence is ErrNeedShape.
//
// Files come from strangers: lengths are checked before anything is allocated,
// what must be held in memory is bounded (MaxHeld), and what is wrong is a
// *trace.CorruptError that names file and line or offset. Nothing is executed:
// of PyTorch pickles plain containers, numbers and tensors are read, anything
// else is refused by name.
package importer
