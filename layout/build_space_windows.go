package layout

import "io/fs"

// allocatedBytes is the space that a file takes on its device, if it has no holes.
func allocatedBytes(info fs.FileInfo) int64 { return info.Size() }
