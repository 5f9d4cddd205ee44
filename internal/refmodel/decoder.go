package refmodel

import (
	"strings"
	"unicode/utf8"
)

// Decode gives the bytes that the tokens stand for, control tokens by their
// names. Ids that the vocabulary does not have give nothing. The result is not
// valid UTF-8 where a character is cut at either end.
func (t *Tokenizer) Decode(ids []int32) string {
	var out strings.Builder
	for _, id := range ids {
		out.WriteString(t.token(id))
	}
	return out.String()
}

// token is the text of one token; empty for an id out of range.
func (t *Tokenizer) token(id int32) string {
	if id < 0 || int(id) >= len(t.text) {
		return ""
	}
	return t.text[id]
}

// Decoder decodes a stream of tokens, holding a character back until all its
// bytes are there. The concatenation of all that Next and Flush return is what
// Decode returns. For one goroutine.
type Decoder struct {
	tokenizer *Tokenizer
	pending   []byte // start of a character, at most utf8.UTFMax-1 bytes between calls
}

// NewDecoder starts a stream.
func (t *Tokenizer) NewDecoder() *Decoder { return &Decoder{tokenizer: t} }

// Next takes one token and returns the text that is complete with it, often
// empty inside a character of several bytes.
func (d *Decoder) Next(id int32) string {
	d.pending = append(d.pending, d.tokenizer.token(id)...)
	n := completePrefix(d.pending)
	out := string(d.pending[:n])
	d.pending = append(d.pending[:0], d.pending[n:]...)
	return out
}

// Flush ends the stream: it returns what is held back, the bytes of a cut character.
func (d *Decoder) Flush() string {
	out := string(d.pending)
	d.pending = d.pending[:0]
	return out
}

// completePrefix is the length of p without a character that more bytes could complete.
func completePrefix(p []byte) int {
	for back := 1; back < utf8.UTFMax && back <= len(p); back++ {
		if start := len(p) - back; utf8.RuneStart(p[start]) {
			if !utf8.FullRune(p[start:]) {
				return start
			}
			break
		}
	}
	return len(p)
}
