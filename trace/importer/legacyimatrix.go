package importer

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// formLegacyImatrix is llama.cpp's importance matrix before GGUF: it is
// recognised so that it can be refused with a reason.
const formLegacyImatrix = "llama-imatrix-dat"

// sniffLegacyImatrix looks at the first entry: its name is that of a weight, and
// the numbers around it are possible.
func sniffLegacyImatrix(p *peek) bool {
	le, b := binary.LittleEndian, p.head
	if len(b) < 8 {
		return false
	}
	entries, length := int32(le.Uint32(b)), int32(le.Uint32(b[4:]))
	if entries < 1 || entries > 1<<20 || length < 1 || length > 256 || len(b) < 16+int(length) {
		return false
	}
	name, b := b[8:8+length], b[8+length:]
	calls, values := int32(le.Uint32(b)), int32(le.Uint32(b[4:]))
	foreign := func(r rune) bool { return r <= ' ' || r > '~' }
	return calls >= 0 && values > 0 && bytes.HasSuffix(name, []byte(".weight")) && bytes.IndexFunc(name, foreign) < 0
}

func openLegacyImatrix(in *input) (*content, error) {
	return nil, fmt.Errorf("%s: %w: a legacy .dat imatrix has no count of tokens for each expert, because its values were divided by them; converting it does not bring them back: run llama-imatrix again with --output-format gguf",
		in.files[0].path, ErrLossy)
}
