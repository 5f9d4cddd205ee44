package refmodel

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

// wantError checks the sentinel and a part of the text.
func wantError(t *testing.T, name string, err, sentinel error, text string) {
	t.Helper()
	if !errors.Is(err, sentinel) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: got error %v, want %v with %q", name, err, sentinel, text)
	}
}

func putFloat(p []byte, v float32) { binary.LittleEndian.PutUint32(p, math.Float32bits(v)) }
