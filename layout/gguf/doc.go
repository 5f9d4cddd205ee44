// Package gguf reads the headers of GGUF checkpoints, the file format of
// llama.cpp: metadata and tensor table, never a byte of tensor data unless
// asked for one tensor. Versions 2 and 3, little- and big-endian, one file or split
// into shards, named by itself, by any shard or by its folder. Writer writes them.
//
//	┌───────┬─────────┬────────┬──────────┬──────────────┬─────────┬─────────────┐
//	│ magic │ version │ counts │ metadata │ tensor table │ padding │ tensor data │
//	└───────┴─────────┴────────┴──────────┴──────────────┴─────────┴─────────────┘
//	└─────────────── read by Open, in growing chunks ──────────────┘
//
// The byte order is told by the version, whose lower half is never zero. Tensor
// bytes stay as they are: a tensor whose numbers are big-endian says so.
//
// Words: a shard is one file of a checkpoint; a key names a metadata value; a
// routed expert's tensor is stacked (all experts of a layer in one) or, in old
// files, one per expert.
//
// Files come from strangers. Open checks in this order: magic, version,
// counts against the file's size, then each length before it is used; then
// that every tensor lies inside its file, aligned, and fills the span up to the
// next one. Shards must be those of one split, all and no more.
// A header above 256 MiB is refused. What is wrong is said by a *FormatError
// with the file, the place and one of the sentinels in errors.go.
//
// A File holds no file open and is immutable: safe for concurrent use, nothing
// to close. It keeps the first shard's header in memory, since metadata is
// decoded when asked for.
package gguf
