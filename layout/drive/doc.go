// Package drive measures what a drive gives to reads of the kind that this
// module makes, large and at random places around the page cache, and says
// with which settings it gives that.
//
//   - Probe measures a folder, a file or the lanes of a store, in bounded time
//     and space.
//   - Profile is the result: the table of block size x depth, the settings to
//     use, what the system tells of the drive, and whether it was the drive at
//     all that was measured. Save and Load keep it.
//
// # Method
//
// A cell of the table is a block size and a depth, the number of reads under
// way at once. Cells are measured in rounds, for a slice of time each:
//
//	round 0    depth 1 of all sizes, then depth 2, …; a size whose last two
//	           depths gained nothing has no further ones, and what would not end
//	           in time is left out
//	round 1…   all cells in an order that is shuffled by a fixed seed, so that
//	           a slow spell of the drive does not hit one cell alone
//
// A rate counts from when the drive's queue is full, so that it depends on
// neither the length of a slice nor the first latency in it. A figure of a cell
// is the median of its rounds. Buffers are touched before
// the first read, lie outside Go's heap and in huge pages where the system has
// them, as those of experts do. In a folder the reads go to a temporary file
// of random bytes, since drives and file systems compress others or do not
// store them at all.
//
// # Ownership and concurrency
//
// Probe owns all that it opens, and ends it before it returns, but for one
// case: a call that hangs in the kernel can be neither cancelled nor joined.
// Probe then returns when its time is up; the goroutine, its file and its
// buffers end when the kernel gives the call back. The temporary file has no
// name by then where the system allows that (Linux). There are no locks that
// are held over a call.
package drive
