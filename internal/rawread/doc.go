// Package rawread measures what a drive gives when nothing stands in between:
// it reads the extents of experts in a given order with some workers, through
// the same files as the runtime would (layout.Source.Lanes), and throws the bytes
// away. There is no cache, no policy, no checksum and no slot. The runtime's
// bytes per second are to be compared with this figure.
//
// Where the lanes have a layout.Reader one goroutine keeps all reads under way, else
// there is one for each. A read has a buffer in huge pages, as the runtime's slots are,
// which is used again, so that memory stays at Workers × Block. Run joins what it
// starts before it returns.
package rawread
