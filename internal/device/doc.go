// Package device models drives: it wraps files so that reads take the time, and
// fail in the ways, of a real one.
//
//   - A Drive is the model: bandwidth, base latency, queue depth, and a Rule that
//     stalls or fails single reads. Files on one Drive share it, as lanes on
//     one device do. A drive can be removed.
//   - FS and Drive.File put a drive under a layout.FS or a layout.File.
//   - Records is a layout.Source in memory whose experts have known contents, to
//     be put on drives.
//
// Waiting is time.Sleep and channels, so a drive made inside a testing/synctest
// bubble runs in the bubble's virtual time, exactly and at once. A drive must be
// used in the bubble that it was made in.
//
// A read of n bytes goes through the drive like this:
//
//	wait for one of Depth places → base latency (overlaps) → transfer (one after
//	another at BytesPerSecond) → what the Rule adds
//
// No lock is held while waiting. The caller owns the files and closes them.
package device
