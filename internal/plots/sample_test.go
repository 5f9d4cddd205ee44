package plots

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// allRuns are those of internal/runs, and two of its bounds.
var allRuns = []string{
	"lru", "lru+spec", "lfu", "lfu+spec", "least-stale", "least-stale+spec", "decayed", "decayed+spec", "frequency", "frequency+spec",
	"transition", "transition+spec", "matrix", "matrix+spec", "online", "online+spec", "online+next", "optimum",
}

// measured are results of outrider simulate on gpt-oss-20b, 300 tokens, ratio 1.
func measured() []Point {
	return []Point{
		{"lru", 0.125, 1, 0.386, 0.614}, {"online", 0.125, 1, 0.507, 0.493}, {"online+spec", 0.125, 1, 0.856, 0.145}, {"optimum", 0.125, 1, 0.622, 0.378},
		{"lru", 0.25, 1, 0.677, 0.323}, {"online", 0.25, 1, 0.744, 0.256}, {"online+spec", 0.25, 1, 0.911, 0.089}, {"optimum", 0.25, 1, 0.831, 0.169},
		{"lru", 0.5, 1, 0.922, 0.078}, {"online", 0.5, 1, 0.944, 0.056}, {"online+spec", 0.5, 1, 0.965, 0.035}, {"optimum", 0.5, 1, 0.968, 0.032},
	}
}

// made gives each run figures of its own. Hits fall with the ratio only if runs
// read ahead.
func made(runs []string, shares, ratios []float64) (points []Point) {
	for i, run := range runs {
		for _, share := range shares {
			for _, ratio := range ratios {
				hits := share * (0.5 + 0.02*float64(i))
				if kindOf(run) == reads {
					hits /= 1 + ratio/10
				}
				points = append(points, Point{run, share, ratio, hits, ratio * (1 - hits)})
			}
		}
	}
	return points
}

// cases are data of all shapes; golden files exist of the first ones.
func cases() map[string]Data {
	long := strings.Repeat("long ", 50)
	share := []float64{0.25}
	return map[string]Data{
		"lines":  {Title: "openai/gpt-oss-20b", Subtitle: "24 layers x 32 experts, top 4, 300 tokens", Points: measured()},
		"ratios": {Title: "two ratios", Points: made([]string{"lru", "online", "online+spec", "optimum"}, []float64{0.1, 0.2, 0.4}, []float64{2, 0.5})},
		"bars":   {Title: "one share", Points: measured()[4:8]},

		"keeping":    {Points: made([]string{"lru", "online", "optimum"}, []float64{0.125, 0.25, 0.5, 0.75, 1}, []float64{0.5, 1})},
		"keeping 5":  {Points: made([]string{"lru", "optimum"}, []float64{0.25, 0.5, 1}, []float64{0.25, 0.5, 1, 2, 4})},
		"all":        {Title: "all", Points: made(allRuns, []float64{0.05, 0.1, 0.125, 0.2, 0.25, 0.375, 0.5, 0.75}, []float64{0.5, 1, 2})},
		"all bars":   {Title: "all", Subtitle: "bars", Points: made(allRuns, share, []float64{0.5, 1, 2})},
		"crowded":    {Points: made([]string{"lru", "lru+spec"}, []float64{0.03, 0.031, 0.032, 0.0325, 0.25, 0.251, 0.99, 1}, []float64{1})},
		"one point":  {Points: measured()[:1]},
		"gaps":       {Points: append(measured(), Point{"mmap", 0.25, 1, 0.5, 123456})},
		"long":       {Title: long, Subtitle: long, Points: made([]string{long, long + "x", long + "+spec"}, []float64{0.1, 0.9}, []float64{1})},
		"long bars":  {Points: made([]string{long, long + "x", long + "+spec"}, share, []float64{1e-3})},
		"strange":    {Title: "a\x00b\n<text \xff & ]]> 'q' \u202e", Points: made([]string{"<run>&\x07", "日本語", "+", "+spec", " "}, []float64{0.1, 0.9}, []float64{1})},
		"no stall":   {Points: []Point{{"lru", 0.5, 1, 1, 0}, {"lru", 1, 1, 1, 0}}},
		"many loads": {Points: made(allRuns[:5], share, []float64{1, 2, 3, 4, 5, 6, 7, 8})},
	}
}

func drawSVG(t testing.TB, d Data) string {
	t.Helper()
	var b bytes.Buffer
	if err := Simulation(&b, "svg", d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// textBox is a text of an SVG and where it lies, with y downwards.
type textBox struct {
	text                     string
	left, right, top, bottom float64
}

// document is what the tests look at.
type document struct {
	width, height float64
	texts         []textBox
	paths         []path
}

type path struct{ data, style string }

// drawn counts the paths whose style has all these parts.
func (d *document) drawn(parts ...string) (n int) {
paths:
	for _, p := range d.paths {
		for _, part := range parts {
			if !strings.Contains(p.style, part) {
				continue paths
			}
		}
		n++
	}
	return n
}

// parseSVG fails where the text is not XML, or a text has no place or width.
func parseSVG(t testing.TB, svg string) document {
	t.Helper()
	var doc document
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return doc
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attrs := map[string]string{}
		for _, a := range start.Attr {
			attrs[a.Name.Local] = a.Value
		}
		switch start.Name.Local {
		case "svg":
			size := strings.Fields(attrs["viewBox"])
			doc.width, doc.height = figureOf(t, size[2]), figureOf(t, size[3])
		case "path":
			doc.paths = append(doc.paths, path{attrs["d"], attrs["style"]})
		case "text":
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				t.Fatal(err)
			}
			_, size, _ := strings.Cut(attrs["style"], "font-size:")
			size, _, _ = strings.Cut(size, "px")
			x, y, height := figureOf(t, attrs["x"]), doc.height+figureOf(t, attrs["y"]), figureOf(t, size)
			doc.texts = append(doc.texts, textBox{text, x, x + figureOf(t, attrs["textLength"]), y - 0.75*height, y + 0.2*height})
		}
	}
}

func figureOf(t testing.TB, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (d document) has(text string) (n int) {
	for _, box := range d.texts {
		if box.text == text {
			n++
		}
	}
	return n
}

// isGolden compares a drawing with its golden file, or writes that anew.
func isGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (make it with go test -update)", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: want -, got + (go test -update writes it anew; look at it then):\n%s", file, diff)
	}
}

// textsApart checks that no text is cut off or lies on another.
func textsApart(t *testing.T, name string, doc document) {
	t.Helper()
	for i, a := range doc.texts {
		if a.left < 0 || a.right > doc.width || a.top < 0 || a.bottom > doc.height {
			t.Errorf("%s: %q lies at %.0f…%.0f, %.0f…%.0f of %.0f x %.0f", name, a.text, a.left, a.right, a.top, a.bottom, doc.width, doc.height)
		}
		for _, b := range doc.texts[:i] {
			if a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom {
				t.Errorf("%s: %q and %q overlap", name, a.text, b.text)
			}
		}
	}
}
