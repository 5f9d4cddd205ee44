package refmodel

import "strings"

// byteText writes bytes as vocabularies of byte-level BPE do: printable Latin-1
// bytes stand for themselves, the other 68 for the characters from U+0100 on.
type byteText struct {
	rune [256]rune
	byte map[rune]byte
}

func newByteText() *byteText {
	t := &byteText{byte: make(map[rune]byte, 256)}
	next := rune(0x100)
	for b := range 256 {
		r := rune(b)
		printable := '!' <= r && r <= '~' || 0xA1 <= r && r <= 0xAC || 0xAE <= r && r <= 0xFF
		if !printable {
			r = next
			next++
		}
		t.rune[b] = r
		t.byte[r] = byte(b)
	}
	return t
}

// bytes turns a vocabulary entry into the bytes it stands for; false if a
// character of it stands for no byte.
func (t *byteText) bytes(entry string) (string, bool) {
	var out strings.Builder
	for _, r := range entry {
		b, ok := t.byte[r]
		if !ok {
			return "", false
		}
		out.WriteByte(b)
	}
	return out.String(), true
}
