package importer

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// legacyImatrix is a .dat file with one entry.
func legacyImatrix(name string) string {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 1)
	b = append(le.AppendUint32(b, uint32(len(name))), name...)
	b = le.AppendUint32(le.AppendUint32(b, 72), 4)
	b = append(b, make([]byte, 4*4)...)
	b = le.AppendUint32(b, 72)
	return string(append(le.AppendUint32(b, 5), "a.txt"...))
}

func TestLegacyImatrixIsRefused(t *testing.T) {
	_, err := Open([]string{txFile(t, "imatrix.dat", legacyImatrix("blk.0.ffn_up_exps.weight"))}, Options{})
	if !errors.Is(err, ErrLossy) || !strings.Contains(err.Error(), "run llama-imatrix again with --output-format gguf") {
		t.Errorf("got %v, want ErrLossy with the remedy", err)
	}
	for _, content := range []string{"", "\x01\x00\x00\x00", legacyImatrix("blk.0"), legacyImatrix("\x01.weight"), legacyImatrix(strings.Repeat("x", 300) + ".weight")} {
		if _, err := Open([]string{txFile(t, "imatrix.dat", content)}, Options{}); errors.Is(err, ErrLossy) {
			t.Errorf("%.40q was found as a legacy imatrix", content)
		}
	}
}
