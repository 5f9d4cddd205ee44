package trace

import (
	"bytes"
	"errors"
	"testing"
)

// decodes runs a reader over bytes from a stranger. What it accepts must be
// within the rules, and must survive a writer and a reader unchanged.
func decodes(t *testing.T, s Stream, err error) {
	if err == nil {
		var tr *Trace
		tr, err = ReadAll(s, 0)
		if errors.Is(err, ErrActivation) {
			t.Fatalf("the reader let something through: %v", err)
		}
		again, err := readBinary(binaryOf(t, tr))
		if err != nil {
			t.Fatalf("written and read again: %v", err)
		}
		if again.Len() != tr.Len() {
			t.Fatalf("written and read again: got %d tokens, want %d", again.Len(), tr.Len())
		}
	}
	var corrupt *CorruptError
	if err != nil && !errors.As(err, &corrupt) && !errors.Is(err, ErrTorn) && !errors.Is(err, ErrNotTrace) && !errors.Is(err, ErrVersion) {
		t.Fatalf("got an error of no kind: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(binaryOf(f, small(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealAll(b)} {
			s, err := NewReader(bytes.NewReader(b))
			decodes(t, s, err)
		}
	})
}

func FuzzJSONLReader(f *testing.F) {
	f.Add(jsonlOf(f, small(f)))
	f.Add([]byte(`{"layers":1,"experts":4,"top_k":2}` + "\n" + `{"seq":1,"pos":0,"experts":[[1]],"phase":"decode"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := NewJSONLReader(bytes.NewReader(b))
		decodes(t, s, err)
	})
}

func FuzzNewStream(f *testing.F) {
	f.Add(binaryOf(f, small(f)))
	f.Add(jsonlOf(f, small(f)))
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"))
	f.Add([]byte("\x28\xb5\x2f\xfd\x04\x00\x09\x00\x00{"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := NewStream(bytes.NewReader(b))
		decodes(t, s, err)
	})
}

func FuzzParseHistory(f *testing.F) {
	f.Add(historyBytes(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, resealAll(b)} {
			h, err := ParseHistory(b)
			var corrupt *CorruptError
			if err != nil {
				if !errors.As(err, &corrupt) && !errors.Is(err, ErrTorn) && !errors.Is(err, ErrNotTrace) && !errors.Is(err, ErrVersion) {
					t.Fatalf("got an error of no kind: %v", err)
				}
				continue
			}
			for l := range min(h.Shape().Layers, 4) {
				for e := range int32(min(h.Shape().Experts, 8)) {
					if n := h.Coactivation(l, e, 3) + h.Transition(l, e, 3); n > 2*h.Tokens() {
						t.Fatalf("layer %d expert %d: got %d uses of %d tokens", l, e, n, h.Tokens())
					}
				}
			}
			var out bytes.Buffer
			if _, err := h.WriteTo(&out); err != nil {
				t.Fatalf("WriteTo: %v", err)
			}
			if _, err := ParseHistory(out.Bytes()); err != nil {
				t.Fatalf("written and read again: %v", err)
			}
		}
	})
}
