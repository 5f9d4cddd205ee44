// Package layout says where expert weights lie: in a checkpoint, and in a
// store, the folder that a checkpoint's experts are copied to so that each one
// can be read at once. It plans, builds, opens and verifies stores, and opens a
// checkpoint in place. It knows no policy: what to read and when is not its concern.
//
// # Words
//
// An expert is named by its ExpertID; a projection is one of its tensors, side
// tensors included. A record holds all projections of one expert, contiguous
// and aligned. The records of one layer, in the order in which they lie, are
// its stripe. A lane is one file of records, on one device. A form is the inner
// order of records; layers with the same projections share one. A piece is the
// part of a record that one lane holds.
//
// # Use
//
//	plan, err := layout.PlanStore(checkpoint, layout.PlanOptions{})
//	report, err := layout.Build(ctx, layout.BuildOptions{Dir: dir, Plan: plan, Checkpoint: &checkpoint})
//	store, err := layout.OpenStore(layout.OS(), dir, layout.Direct)
//	defer store.Close()
//	err = store.Locate(id, &placement) // what to read, and where the tensors then lie
//
// PlanStore is pure: the size of a store is known before anything is written.
// Files are read and written through FS and WriteFS only. OS is the file system
// that always works; a Ring reads direct files through io_uring where it may.
//
// # Ownership and concurrency
//
// Whoever opens a Source closes it; its lanes belong to it. Slices that a
// Source or Manifest returns are shared and must not be changed. Source and FS
// are safe for concurrent use. Build and Verify join all goroutines they start
// before they return; a Ring joins its goroutine in Close. Locks are private to Build,
// Verify, a Ring and its files: none is held over a call or taken under another.
//
// # Format version 1
//
// A store is a folder with manifest.json, index.bin, the lanes that lie on its
// device, and optionally router.safetensors, the router matrices, and copies.bin,
// which says what of other lanes LANE.copies beside each lane holds a second time.
// docs/store-format.md has the whole specification with an example. All numbers
// are little-endian, all sums are CRC-32C (Castagnoli, as in iSCSI).
//
// index.bin, for L layers, E experts a layer, N lanes, and P projections in the
// largest form:
//
//	header, 64 bytes
//	   0  magic "OUTRIDX\n"
//	   8  u32 version, 1
//	  12  u32 size of this header, 64
//	  16  u32 L
//	  20  u32 E
//	  24  u32 N
//	  28  u32 P
//	  32  u32 size of a row: 8 + 16 N + 4 P, rounded up to a multiple of 8
//	  36  store id, 16 bytes
//	  52  zero, 8 bytes
//	  60  u32 sum of bytes 0 to 59
//	L × E rows, layer by layer, in a layer in the order of its stripe
//	   0  u32 layer
//	   4  u32 expert
//	   8  N × piece: u64 offset in lane, u64 bytes; both zero: no piece there
//	   …  P × u32 sum of the projection's bytes; zero beyond the layer's form
//	   …  zero up to the row size
//	trailer
//	   0  u32 sum of all bytes before it
//
// A record is the concatenation of its pieces by ascending lane:
//
//	             ┌ form.bytes ─────────────────────────────────────────┐
//	record       │ gate      │0│ up        │0│ down      │ bias │0│ 000 │
//	             └ aligned     └ aligned     └ aligned   └ 64
//	lane 0  … ───┤ piece, ≥ 256 KiB  ├─── …
//	lane 1  … ───────────┤ piece, ≥ 256 KiB               ├─── …
//
// Rules that a writer keeps and OpenStore or Verify checks:
//
//   - A record starts on a multiple of its form's align, from 512 to 2 MiB, and
//     its bytes are a multiple of it. A projection of 256 KiB or more starts on
//     a multiple of align in the record, any other on a multiple of 64.
//   - Tensor bytes are the checkpoint's own. All other bytes of a lane are zero.
//   - A record is whole on one lane or cut: then each piece is at least 256 KiB,
//     a multiple of align, and align is at least 4096.
//   - Pieces of a lane ascend with the rows and do not overlap. A lane has no
//     header; its size, a multiple of 4096, is in the manifest.
//   - Limits: 4096 layers, 65536 experts a layer, 2^24 experts in all, 64 lanes,
//     64 projections, records of 64 GiB, lanes of 64 TiB, 8 MiB for the manifest.
//
// The manifest's fields are those of Manifest. Its file ends with the member
// "manifest_crc32c": eight lower-case hex digits, the sum of all bytes of the
// file before them, and then quote, newline, closing brace, newline and nothing
// else. "index"."crc32c" is the trailer of index.bin, not a sum over it and its
// trailer, which would be the same for every file.
//
// A reader checks, in this order: the word in "format" (else ErrNotStore), the
// version (else ErrVersion), checksums, and bounds (else *CorruptError), and
// checks lengths before it allocates.
package layout
