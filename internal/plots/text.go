package plots

import (
	"image/color"
	"sort"
	"strings"
	"unicode"

	"golang.org/x/image/font"
	"gonum.org/v1/plot"
	plotfont "gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// maxText is how much of a text is looked at; no line of a picture holds more.
const maxText = 400

// textStyle is Liberation Sans, which is part of the plotting library.
func textStyle(size float64, c color.Color) text.Style {
	return text.Style{
		Color:   c,
		Font:    plotfont.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(size)},
		XAlign:  text.XLeft,
		YAlign:  text.YBottom,
		Handler: plot.DefaultTextHandler,
	}
}

func bold(s text.Style) text.Style {
	s.Font.Weight = font.WeightBold
	return s
}

// clean makes one line of a text that may come from a file's name: SVG is XML
// and admits no control characters.
func clean(s string) string {
	if len(s) > 4*maxText {
		s = s[:4*maxText]
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.Join(strings.Fields(s), " ")
}

// fit cuts a text that is wider than the room for it.
func fit(s string, style text.Style, room vg.Length) string {
	runes := []rune(s)
	if len(runes) <= maxText && style.Width(s) <= room {
		return s
	}
	cut := func(n int) string { return strings.TrimSpace(string(runes[:n])) + "…" }
	tooLong := 1 + sort.Search(min(len(runes)-1, maxText), func(n int) bool { return style.Width(cut(n+1)) > room })
	return cut(tooLong - 1)
}
