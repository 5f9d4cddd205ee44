package synthckpt

import (
	"strings"
	"testing"
)

var sizes = map[string]int64{"H": 64, "F": 96, "E": 8, "zero": 0}

func TestEval(t *testing.T) {
	for text, want := range map[string]int64{
		"7": 7, "H": 64, "2*F": 192, "E*F": 768, "H/32": 2, "F/128": 1, "H+2*E-1": 79, "(H+F)/2": 80, "2*(E-(3+1))": 8, "zero": 0,
	} {
		got, err := eval(text, sizes)
		if err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestEvalErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "neither a number nor a size",
		"Q":                           `"Q" is neither`,
		"H+":                          "neither",
		"H)":                          `")" is left`,
		"(H":                          "stays open",
		"E-H":                         "out of range",
		"H/zero":                      "64 / 0",
		"H*1099511627775*64":          "too large",
		"9999999999999":               "neither",
		strings.Repeat("(", 40) + "H": "too many parentheses",
	} {
		if got, err := eval(text, sizes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %d, %v, want an error with %q", text, got, err, want)
		}
	}
}

// No text makes it panic or leave its range.
func FuzzEval(f *testing.F) {
	for _, text := range []string{"2*(H+F)/32", "((((", "H--1", "9*9*9*9", "E/0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := eval(text, sizes); err == nil && (v < 0 || v > maxSize) {
			t.Errorf("%q: got %d, want 0 to %d", text, v, int64(maxSize))
		}
	})
}
