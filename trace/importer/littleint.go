package importer

import "encoding/binary"

// littleInt is a signed little-endian number of so many bytes; of one byte it
// has no sign.
func littleInt(b []byte, width int) int64 {
	switch width {
	case 1:
		return int64(b[0])
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}
