package refmodel

import (
	"unicode"
	"unicode/utf8"
)

// splitWord returns the length in bytes of the first piece of s by Qwen2's
// rule, at least one byte of a non-empty s. Merges never cross pieces. The
// rule, whose alternatives are tried in this order (i: either case):
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
//
// It is written out by hand since Go's regexp has no look-ahead. A byte that
// is not UTF-8 counts as a sign of its own.
func splitWord(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	first, width := utf8.DecodeRuneInString(s)
	switch {
	case unicode.IsLetter(first):
		return width + span(s[width:], unicode.IsLetter)
	case unicode.IsNumber(first):
		return width
	}
	if first != '\r' && first != '\n' {
		if n := span(s[width:], unicode.IsLetter); n > 0 {
			return width + n
		}
	}
	if n := signs(s); n > 0 {
		return n
	}
	return blanks(s)
}

// contraction is the length of an English contraction at the start of s, or 0.
func contraction(s string) int {
	if len(s) < 2 || s[0] != '\'' {
		return 0
	}
	switch lower(s[1]) {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) < 3 {
		return 0
	}
	switch string([]byte{lower(s[1]), lower(s[2])}) {
	case "re", "ve", "ll":
		return 3
	}
	return 0
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// signs is the length of a run of signs at the start of s, with one space
// before and the line ends after it, or 0.
func signs(s string) int {
	start := 0
	if s[0] == ' ' {
		start = 1
	}
	n := span(s[start:], isSign)
	if n == 0 {
		return 0
	}
	n += start
	return n + span(s[n:], isLineEnd)
}

// blanks is the length of the first piece of a run of white space: up to its
// last line end, else all of it at the end of the text, else all but the last
// blank, which belongs to the word that follows.
func blanks(s string) int {
	lastLineEnd, lastStart, end := 0, 0, 0
	for end < len(s) {
		r, width := utf8.DecodeRuneInString(s[end:])
		if !unicode.IsSpace(r) {
			break
		}
		if isLineEnd(r) {
			lastLineEnd = end + width
		}
		lastStart = end
		end += width
	}
	switch {
	case lastLineEnd > 0:
		return lastLineEnd
	case end == len(s) || lastStart == 0:
		return end
	}
	return lastStart
}

// span is the length in bytes of the longest prefix of s whose runes are all in.
func span(s string, in func(rune) bool) int {
	n := 0
	for n < len(s) {
		r, width := utf8.DecodeRuneInString(s[n:])
		if !in(r) {
			break
		}
		n += width
	}
	return n
}

func isSign(r rune) bool {
	return !unicode.IsSpace(r) && !unicode.IsLetter(r) && !unicode.IsNumber(r)
}

func isLineEnd(r rune) bool { return r == '\r' || r == '\n' }
