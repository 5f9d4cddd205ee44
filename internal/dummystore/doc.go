// Package dummystore builds stores that have the shape and the record size of a
// model, but no weights: whoever has a routing trace and not its model can
// replay it with real reads all the same.
//
// A dummy store is a store as layout.Build makes it, and opens and verifies as
// any other. It is built from a checkpoint that exists only as a description:
// its one file is made up as it is read, so that nothing is written but the
// store. The bytes are pseudo-random (splitmix64 over the place in the file), so
// that a drive or file system that compresses or deduplicates gains nothing by
// them, and the same for the same shape and record size.
package dummystore
