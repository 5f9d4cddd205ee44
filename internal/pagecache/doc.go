// Package pagecache asks the kernel how much of a file is in the page cache, and
// empties the cache of it, so that a measurement can start cold and prove it.
//
// It works on Linux. Elsewhere both functions fail with errors.ErrUnsupported.
package pagecache
