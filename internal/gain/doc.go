// Package gain forecasts what a store would gain over reading a checkpoint in
// place, on the drive where it would lie: it measures, and says so also where a
// store does not pay.
//
//   - Measure packs a handful of experts into a small temporary store, as
//     layout.Build makes them, and reads them from it and from the checkpoint.
//   - Result is what came out: reads and bytes of a token, rates, the stall that a
//     token would see, and a Verdict with its reason.
//
// # Method
//
// The sample is some layers, spread over the model, and of each some experts at
// random. A batch is as many experts of one layer as a token uses; it is asked for
// at once, and the next one when all of it has come, which is what a layer does
// that finds nothing in memory. Each batch is read in place and from the store in
// turn, and who comes first changes from batch to batch. Rounds of some batches
// are compared with each other, and with a slice of raw reads of the same round:
// large blocks at random places of the temporary store. In the end the batches of
// the first round are read in place once more: what has changed since then is the
// drive's doing, not the layout's.
//
// Both copies have been read shortly before, by the packing, so that neither is
// colder than the other for what caches beyond our reach (of a controller, of a
// virtual machine's host). The sample's records lie nearer to each other than
// those of a whole store: where heads have to move, the gain is overstated.
//
// # Ownership and concurrency
//
// Measure owns all that it opens and makes, and ends it before it returns. The
// temporary store is removed as soon as its files are open, where the system
// allows that, or else at the end; only a process that is killed while it is
// packing leaves something, in a folder named ".outrider-forecast-…".
package gain
