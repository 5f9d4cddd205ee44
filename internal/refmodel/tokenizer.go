package refmodel

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Token types of GGUF's tokenizer.ggml.token_type that matter here.
const (
	typeNormal      = 1
	typeControl     = 3
	typeUserDefined = 4
)

// Tokenizer is a byte-level BPE with Qwen2's split rule. Every text, valid
// UTF-8 or not, has an encoding, and Decode gives its bytes back. No Unicode
// normalisation is done (as in llama.cpp). It does not change: safe for concurrent use.
type Tokenizer struct {
	text    []string // the bytes of each token
	control []bool
	single  [256]int32
	merges  map[pair]merge
	special map[byte][]special // by first byte, longest first
	end     int32
}

// special is a token that is found in the text as it stands, before any splitting.
type special struct {
	text    string
	id      int32
	control bool
}

// vocabulary is what a checkpoint says about its tokens.
type vocabulary struct {
	tokens []string // printable form, see byteText
	types  []int64  // one a token; nil: all normal
	merges []string // "left right", earliest first
	end    int64    // the token that ends a text; -1: none
}

func newTokenizer(v vocabulary) (*Tokenizer, error) {
	if v.types != nil && len(v.types) != len(v.tokens) {
		return nil, fmt.Errorf("%w: %d token types for %d tokens", ErrTokenizer, len(v.types), len(v.tokens))
	}
	if v.end < -1 || v.end >= int64(len(v.tokens)) {
		return nil, fmt.Errorf("%w: end token %d, but there are %d tokens", ErrTokenizer, v.end, len(v.tokens))
	}
	t := &Tokenizer{
		text:    make([]string, len(v.tokens)),
		control: make([]bool, len(v.tokens)),
		special: make(map[byte][]special),
		end:     int32(v.end),
	}
	ids, err := t.addTokens(v)
	if err != nil {
		return nil, err
	}
	for b := range 256 {
		id, ok := ids[string([]byte{byte(b)})]
		if !ok {
			return nil, fmt.Errorf("%w: no token for byte %#02x", ErrTokenizer, b)
		}
		t.single[b] = id
	}
	return t, t.addMerges(v.merges, ids)
}

// addTokens fills the tables of tokens and returns the ids of the normal ones by their bytes.
func (t *Tokenizer) addTokens(v vocabulary) (map[string]int32, error) {
	ids := make(map[string]int32, len(v.tokens))
	bytes := newByteText()
	for i, entry := range v.tokens {
		kind := int64(typeNormal)
		if v.types != nil {
			kind = v.types[i]
		}
		if kind != typeNormal {
			t.addPlain(special{text: entry, id: int32(i), control: kind == typeControl}, kind)
			continue
		}
		text, ok := bytes.bytes(entry)
		if !ok {
			return nil, fmt.Errorf("%w: token %d, %q, is not in byte-level form", ErrTokenizer, i, entry)
		}
		t.text[i] = text
		if _, taken := ids[text]; !taken {
			ids[text] = int32(i)
		}
	}
	for _, list := range t.special {
		slices.SortFunc(list, func(a, b special) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return ids, nil
}

// addPlain adds a token whose entry is its text as it stands.
func (t *Tokenizer) addPlain(s special, kind int64) {
	t.text[s.id], t.control[s.id] = s.text, s.control
	if s.text != "" && (s.control || kind == typeUserDefined) {
		t.special[s.text[0]] = append(t.special[s.text[0]], s)
	}
}

func (t *Tokenizer) addMerges(merges []string, ids map[string]int32) error {
	bytes := newByteText()
	t.merges = make(map[pair]merge, len(merges))
	lookup := func(entry string) (string, int32, bool) {
		text, ok := bytes.bytes(entry)
		if !ok {
			return "", 0, false
		}
		id, ok := ids[text]
		return text, id, ok
	}
	for rank, line := range merges {
		left, right, _ := strings.Cut(line, " ")
		leftText, leftID, okLeft := lookup(left)
		rightText, rightID, okRight := lookup(right)
		id, ok := ids[leftText+rightText]
		if !okLeft || !okRight || !ok {
			return fmt.Errorf("%w: merge %d, %q, names something that is no token", ErrTokenizer, rank, line)
		}
		p := pair{leftID, rightID}
		if _, twice := t.merges[p]; !twice {
			t.merges[p] = merge{rank: int32(rank), id: id}
		}
	}
	return nil
}

// Len is the number of tokens.
func (t *Tokenizer) Len() int { return len(t.text) }

// End is the token that ends a text, or -1 if the vocabulary names none.
func (t *Tokenizer) End() int32 { return t.end }

// Encode turns text into tokens. Names of control tokens in it, such as
// "<|endoftext|>", are plain text: a stranger's prompt cannot end itself.
func (t *Tokenizer) Encode(text string) []int32 { return t.encode(text, false) }

// EncodeControl is Encode for a text whose author is trusted: names of control
// tokens become those tokens.
func (t *Tokenizer) EncodeControl(text string) []int32 { return t.encode(text, true) }

func (t *Tokenizer) encode(text string, control bool) []int32 {
	ids := make([]int32, 0, len(text)/2)
	words := bpe{single: &t.single, merges: t.merges}
	start := 0
	for i := 0; i < len(text); i++ {
		s, ok := t.specialAt(text[i:], control)
		if !ok {
			continue
		}
		ids = words.appendText(ids, text[start:i])
		ids = append(ids, s.id)
		start = i + len(s.text)
		i = start - 1
	}
	return words.appendText(ids, text[start:])
}

// specialAt is the longest special token at the start of text.
func (t *Tokenizer) specialAt(text string, control bool) (special, bool) {
	for _, s := range t.special[text[0]] {
		if (control || !s.control) && strings.HasPrefix(text, s.text) {
			return s, true
		}
	}
	return special{}, false
}

// appendText appends the tokens of a text without special tokens.
func (b *bpe) appendText(ids []int32, text string) []int32 {
	for len(text) > 0 {
		n := splitWord(text)
		ids = b.append(ids, text[:n])
		text = text[n:]
	}
	return ids
}
