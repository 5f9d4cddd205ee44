// Package rawread measures what a drive gives when nothing stands in between:
// it reads the extents of experts in a given order with some workers, through
// the same files as the runtime would (layout.Source.Lanes), and throws the bytes
// away. There is no cache, no policy, no checksum and no slot. The runtime's
// bytes per second are to be compared with this figure.
//
// Every worker has one buffer in huge pages, as the runtime's slots are, and uses
// it again for each read, so that memory stays at Workers × Block. Run joins its
// workers before it returns.
package rawread
