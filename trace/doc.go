// Package trace holds what routers chose: activations, one for each token, in
// memory, in files, and counted.
//
// Words. A trace is a header and tokens in the order they were routed; tokens of
// several sequences may interleave. A row is what the router of one layer chose
// for one token: up to top-k distinct expert ids, most often in rank order. A row
// that uses fewer ids is filled up with -1 (and weight 0) in memory; in files the
// fill is left out. Stream is anything that delivers tokens, Sink anything that
// takes them; both are for one goroutine at a time. All errors name the place.
//
//	OpenFile, NewStream   any form, told by content      Trace    all tokens in memory
//	Create                the form told by the name      Collect  statistics in one pass
//	Reader, Writer        the binary form                History  index: who used which expert
//	JSONLReader, …Writer  the JSON lines form            Histogram  counts without order
//
// What other tools record is read by package trace/importer; trace/synth makes
// traces. Collect warns of recordings that look wrong: sequences interleaved under
// one number, and layers whose rows are out of step.
//
// Whoever opens a file closes it. Readers and writers over an io.Reader or
// io.Writer never close that. No goroutine is started.
//
// # Rules of both forms
//
// Sequences and positions are 0 or more; a token id is 0 or more, or -1 where it
// is not known. Either all tokens carry gate weights or none does; they are
// finite. Ids are in range and distinct in a row. A reader refuses what breaks
// this, and what exceeds layout's limits, MaxIDs, MaxText or MaxLine.
//
// # JSON lines
//
// UTF-8, one object a line, at most MaxLine bytes. Line 1 describes the trace;
// every other line is a token. Keys that are not named here are passed over.
//
//	{"model":…,"layers":2,"experts":8,"top_k":2,"layer_ids":[1,2],"phase":"decode","source":…,"note":…,"id_space":"logical","ranked":true,"sequenced":true}
//	{"seq":0,"pos":0,"phase":"decode","experts":[[3,1],[0,2]],"weights":[[0.7,0.3],[0.6,0.4]],"token":71}
//
// layer_ids, phase, source, note, id_space, ranked, sequenced, weights and token are
// optional; what is left out is not known. A header phase other than "prefill" and "decode" (such as "prefill+decode") says that tokens
// differ. Weights are written so that they read back as the same float32. The
// form has no end mark: a tear is seen only where it leaves half a line.
//
// # Binary form, version 1
//
// Little-endian. Nothing is lost: weights are float32. Whole frames can be read
// while the file is still being written.
//
//	+---------------------+------------+
//	| magic 93 "ORTRACE"  | version u32|   12 bytes
//	+---------------------+------------+
//	| frame: header       |                exactly one, first
//	| frame: tokens       |                any number
//	| …                   |
//	| frame: end          |                exactly one, last; without it the trace is torn
//	+---------------------+
//
//	frame    kind u32 | length u32 | payload: length bytes | CRC-32C u32 of all before it
//	         kind 0 and length 0 are invalid; length is at most 4 MiB
//
//	header   kind 1   layers u32, experts u32, top-k u32,
//	                  flags u8 (1 weights, 2 token ids, 4 layer ids, 8 facts), phase u8 (0 unknown, 1 prefill, 2 decode),
//	                  facts if flagged: u8 (bits 0-1 ids: 1 logical, 2 physical; bits 2-3 ranked, 4-5 sequences: 1 yes, 2 no; 0 unknown),
//	                  layer ids if flagged: layers × uvarint, each less the one before it,
//	                  model, source, note: each uvarint length and UTF-8
//	tokens   kind 2   count u32, then count tokens:
//	  token           flags u8 (bits 0-1 phase, bit 2 short),
//	                  seq, pos: varint, each less that of the token before in this frame (0 for the first),
//	                  token id + 1: uvarint, if the header has the flag,
//	                  if short: layers × uvarint, the ids in each row (otherwise each has top-k),
//	                  ids: u8 each where the model has at most 256 experts a layer, else u16,
//	                  weights, if the header has the flag: float32 each
//	end      kind 3   tokens u64
//
// varint and uvarint are those of encoding/binary. A frame stands by itself:
// coding starts anew in each.
//
// # Histogram file
//
// One JSON object, plain, gzip or zstd: uses counted for each layer and expert,
// in one table or several (a data set, a sequence, a forward pass each). Order,
// and with it everything a cache depends on, is lost. Unit says what is counted.
//
//	{"kind":"histogram","model":…,"layers":2,"layer_ids":[0,7],"experts":4,"top_k":2,"unit":"tokens","source":…,"note":…,
//	 "tables":[{"label":"code","counts":[[10,0,2.5,7],[0,1,9,3]]}]}
//
// # History file, version 1
//
// The same frames after the magic 93 "ORHISTO" and the version; an expert's may
// have up to 1 GiB.
//
//	header   kind 1   layers u32, experts u32, top-k u32, tokens u64, flags u8 (1 layer ids), layer ids as above
//	expert   kind 4   ordinal u32 (layer × experts + index), reuse u64, users: a roaring bitmap in its portable format
//	                  in ascending order; experts never used have none
//	end      kind 3   tokens u64
package trace
