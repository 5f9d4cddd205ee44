// Package torchfile reads files that PyTorch's torch.save wrote, without
// PyTorch and without running anything: plain containers, numbers, texts and
// tensors. Whatever else a pickle may hold (it can name any function to be
// called) is refused by its name.
//
//	<name>/data.pkl       a pickle, protocol 2: containers, and tensors by the key of their storage
//	<name>/byteorder      "little" or "big"; files of old versions lack it and are little-endian
//	<name>/data/<key>     a storage: the bare numbers
//	<name>/version, …     not needed
//
// as entries of a zip file, most often stored as they are. Files of before
// PyTorch 1.6, which are no zip, are ErrLegacy.
//
// A pickle is a program for a small stack machine; machine.go has the part of its
// instructions that torch.save writes for such data. Python's values become
//
//	None nil · bool · int int64 · float float64 · str string · tuple Tuple
//	list *List · dict and collections.OrderedDict *Dict · torch.Tensor *Tensor
//
// Lists, dicts and tensors are pointers, since a pickle may name one several times; a
// value may even hold itself, so walk only along paths that you know.
//
// Files come from strangers. Lengths are checked before anything is allocated:
// a pickle has at most 128 MiB and 8 million values; a tensor at most 67 million
// numbers, which must lie in its storage. Why not a library: those at hand
// allocate by lengths from the file, know no limits, and one loses what a list gains after it was
// first named; to feed them only what is safe takes the same machine again.
package torchfile
