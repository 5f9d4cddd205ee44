package refmodel

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestSplitWord(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"words take the blank before", "In the beginning", []string{"In", " the", " beginning"}},
		{"contractions", "it's we'LL I'd o'clock", []string{"it", "'s", " we", "'LL", " I", "'d", " o", "'clock"}},
		{"unknown contraction", "x'r", []string{"x", "'r"}},
		{"lone quote", "a'", []string{"a", "'"}},
		{"digits one by one", "in 1984", []string{"in", " ", "1", "9", "8", "4"}},
		{"numbers of other scripts", "٣½", []string{"٣", "½"}},
		{"signs keep line ends", "x += 1;\n\n\ty", []string{"x", " +=", " ", "1", ";\n\n", "\ty"}},
		{"one blank before signs", "a  ==", []string{"a", " ", " =="}},
		{"a sign leads letters", "(foo)_bar", []string{"(foo", ")_", "bar"}},
		{"blanks up to the last line end", "a \n \n  b", []string{"a", " \n \n", " ", " b"}},
		{"carriage return", "a\r\nb", []string{"a", "\r\n", "b"}},
		{"line end never leads letters", "\nab", []string{"\n", "ab"}},
		{"blanks at the end", "a   ", []string{"a", "   "}},
		{"blanks before a digit", "   7", []string{"  ", " ", "7"}},
		{"marks are signs", "e\u0301a", []string{"e", "\u0301a"}},
		{"wide blanks", "a\u00a0\u3000b", []string{"a", "\u00a0", "\u3000b"}},
		{"not UTF-8", "a\xff\xfeb\xc3", []string{"a", "\xff\xfe", "b", "\xc3"}},
		{"other scripts", "日本語 текст", []string{"日本語", " текст"}},
	}
	for _, test := range tests {
		var got []string
		for rest := test.text; rest != ""; {
			n := splitWord(rest)
			got = append(got, rest[:n])
			rest = rest[n:]
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q: got %q, want %q", test.name, test.text, got, test.want)
		}
	}
}

// letters is a tokenizer of the 256 bytes, some merges and two special tokens.
func letters(t testing.TB, merges ...string) *Tokenizer {
	t.Helper()
	v := lettersVocabulary(merges...)
	tokenizer, err := newTokenizer(v)
	if err != nil {
		t.Fatal(err)
	}
	return tokenizer
}

func lettersVocabulary(merges ...string) vocabulary {
	v := vocabulary{merges: merges}
	bytes := newByteText()
	for b := range 256 {
		v.tokens = append(v.tokens, string(bytes.rune[b]))
		v.types = append(v.types, typeNormal)
	}
	for _, m := range merges {
		v.tokens = append(v.tokens, strings.Replace(m, " ", "", 1))
		v.types = append(v.types, typeNormal)
	}
	v.tokens = append(v.tokens, "<|end|>", "<think>")
	v.types = append(v.types, typeControl, typeUserDefined)
	v.end = int64(len(v.tokens) - 2)
	return v
}

func TestEncodeOrder(t *testing.T) {
	tokenizer := letters(t, "b c", "a b", "a bc", "a a", "aa aa")
	tests := []struct {
		text string
		want []string
	}{
		{"abc", []string{"abc"}},         // b+c is earlier than a+b
		{"abab", []string{"ab", "ab"}},   //
		{"aaa", []string{"aa", "a"}},     // leftmost first
		{"aaaaa", []string{"aaaa", "a"}}, //
		{"aabc", []string{"a", "abc"}},   // a+bc before a+a
		{"bcbc", []string{"bc", "bc"}},   //
		{"", nil},                        //
		{"<|end|>", []string{"<", "|", "e", "n", "d", "|", ">"}},
		{"a<think>a", []string{"a", "<think>", "a"}},
	}
	for _, test := range tests {
		var got []string
		for _, id := range tokenizer.Encode(test.text) {
			got = append(got, tokenizer.token(id))
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}

func TestEncodeControl(t *testing.T) {
	tokenizer := letters(t)
	got := tokenizer.EncodeControl("a<|end|><|end|>b")
	want := []int32{'a', tokenizer.End(), tokenizer.End(), 'b'}
	for i, b := range []int{0, 3} { // printable bytes keep their number as id
		want[b] = tokenizer.single["ab"[i]]
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if text := tokenizer.Decode(got); text != "a<|end|><|end|>b" {
		t.Errorf("decoded: got %q", text)
	}
}

// TestMergesAgainstScan compares the heap with the plain definition: merge the
// earliest pair, leftmost first, until there is none.
func TestMergesAgainstScan(t *testing.T) {
	tokenizer := letters(t, "a b", "b a", "a a", "ab a", "ba b", "aa b", "c a", "ab ab", "aa aa", "ca ba", "c c", "cc a")
	random := rand.New(rand.NewPCG(1, 2))
	words := bpe{single: &tokenizer.single, merges: tokenizer.merges}
	for range 3000 {
		word := make([]byte, 1+random.IntN(24))
		for i := range word {
			word[i] = "abc"[random.IntN(3)]
		}
		got, want := words.append(nil, string(word)), scanMerges(tokenizer, string(word))
		if !slices.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", word, got, want)
		}
	}
}

func scanMerges(t *Tokenizer, word string) []int32 {
	var ids []int32
	for i := range len(word) {
		ids = append(ids, t.single[word[i]])
	}
	for {
		best, at := merge{rank: 1 << 30}, -1
		for i := range len(ids) - 1 {
			if m, ok := t.merges[pair{ids[i], ids[i+1]}]; ok && m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			return ids
		}
		ids[at] = best.id
		ids = slices.Delete(ids, at+1, at+2)
	}
}

func TestLongWord(t *testing.T) {
	tokenizer := letters(t, "a a", "aa aa", "aaaa aaaa")
	text := strings.Repeat("a", 1<<18)
	if got := len(tokenizer.Encode(text)); got != 1<<15 {
		t.Errorf("a word of 2^18 letters: got %d tokens, want %d", got, 1<<15)
	}
}

func TestNewTokenizerErrors(t *testing.T) {
	tests := []struct {
		name   string
		damage func(*vocabulary)
		want   string
	}{
		{"types", func(v *vocabulary) { v.types = v.types[1:] }, "257 token types for 258 tokens"},
		{"end token", func(v *vocabulary) { v.end = 258 }, "end token 258, but there are 258 tokens"},
		{"byte missing", func(v *vocabulary) { v.tokens[0x41] = "x" }, "no token for byte 0x41"},
		{"not byte-level", func(v *vocabulary) { v.tokens[7] = "日" }, `token 7, "日", is not in byte-level form`},
		{"merge", func(v *vocabulary) { v.merges = []string{"a b"} }, `merge 0, "a b", names something that is no token`},
		{"merge without a blank", func(v *vocabulary) { v.merges = []string{"ab"} }, `merge 0, "ab"`},
	}
	for _, test := range tests {
		v := lettersVocabulary()
		test.damage(&v)
		_, err := newTokenizer(v)
		wantError(t, test.name, err, ErrTokenizer, test.want)
	}
}

func TestDecoderHoldsBack(t *testing.T) {
	tokenizer := letters(t)
	tests := []struct {
		text string
		want []string // what each byte's token completes, then Flush
	}{
		{"aé", []string{"a", "", "é", ""}},
		{"日", []string{"", "", "日", ""}},
		{"😀", []string{"", "", "", "😀", ""}},
		{"\xe6\x97a", []string{"", "", "\xe6\x97a", ""}},
		{"\xf0\x9f", []string{"", "", "\xf0\x9f"}},
		{"\x80\xff", []string{"\x80", "\xff", ""}},
	}
	for _, test := range tests {
		decoder := tokenizer.NewDecoder()
		var got []string
		for i := range len(test.text) {
			got = append(got, decoder.Next(tokenizer.single[test.text[i]]))
		}
		got = append(got, decoder.Flush())
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
	if got := tokenizer.Decode([]int32{-1, 1 << 20}); got != "" {
		t.Errorf("ids out of range: got %q, want nothing", got)
	}
}

func FuzzTokenizer(f *testing.F) {
	for _, seed := range []string{"In the beginning", "it's 1984\n\n\tx", "日本\xff\xe6", "<|end|>a<think>", " \r\n  a"} {
		f.Add(seed)
	}
	tokenizer := letters(f, "a b", "i n", "Ġ t", "h e", "Ġt he", "Ġ Ġ", "Ċ Ċ", "æ Ĺ")
	f.Fuzz(func(t *testing.T, text string) {
		for name, encode := range map[string]func(string) []int32{"Encode": tokenizer.Encode, "EncodeControl": tokenizer.EncodeControl} {
			ids := encode(text)
			if got := tokenizer.Decode(ids); got != text {
				t.Errorf("%s: decoded: got %q, want %q", name, got, text)
			}
			decoder := tokenizer.NewDecoder()
			var streamed strings.Builder
			for _, id := range ids {
				part := decoder.Next(id)
				if utf8.ValidString(text) && !utf8.ValidString(part) {
					t.Errorf("%s: a part of valid text is cut: %q", name, part)
				}
				streamed.WriteString(part)
			}
			streamed.WriteString(decoder.Flush())
			if streamed.String() != text {
				t.Errorf("%s: streamed: got %q, want %q", name, streamed.String(), text)
			}
		}
	})
}
