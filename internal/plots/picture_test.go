package plots

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestGolden(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("others may fuse multiplication and addition, and round the last digit differently")
	}
	for _, name := range []string{"lines", "ratios", "bars"} {
		got, file := drawSVG(t, cases()[name]), filepath.Join("testdata", name+".svg")
		isGolden(t, file, got)
	}
}

// Nothing may be cut off or lie on something else.
func TestTextsStayApart(t *testing.T) {
	for name, d := range cases() {
		textsApart(t, name, parseSVG(t, drawSVG(t, d)))
	}
}

func TestSVGIsSmall(t *testing.T) {
	for name, d := range cases() {
		if n := len(drawSVG(t, d)); n > 100_000 {
			t.Errorf("%s: got %d bytes, want at most 100,000", name, n)
		}
	}
}

func TestEachRunIsNamedOnce(t *testing.T) {
	doc := parseSVG(t, drawSVG(t, cases()["all"]))
	for _, run := range allRuns {
		if kindOf(run) == bounds {
			run += " (bound)"
		}
		if got := doc.has(run); got != 1 {
			t.Errorf("%s: got %d labels in a picture of 6 panels, want 1", run, got)
		}
	}
}

func TestLooks(t *testing.T) {
	doc := parseSVG(t, drawSVG(t, cases()["lines"]))
	count := doc.drawn
	// Each in both panels and in the legend.
	for _, c := range []struct {
		what string
		got  int
	}{
		{"lru, dashed", count("stroke:#0072B2", "stroke-dasharray:5,2.5")},
		{"online, dashed", count("stroke:#D55E00", "stroke-dasharray:5,2.5")},
		{"online+spec, solid", count("stroke:#D55E00") - count("stroke:#D55E00", "dasharray")},
		{"online+spec, markers", count("fill:#D55E00")},
		{"optimum, dotted", count("stroke:#000000", "stroke-dasharray:1.5,2")},
	} {
		if c.got != 3 {
			t.Errorf("%s: got %d, want 3", c.what, c.got)
		}
	}
	if got := count("fill:#0072B2"); got != 0 {
		t.Errorf("lru: got %d paths of markers, want none: it does not read ahead", got)
	}
	for _, tick := range []string{"12.5 %", "25 %", "50 %"} {
		if got := doc.has(tick); got != 2 {
			t.Errorf("tick %s: got %d, want one in each panel", tick, got)
		}
	}
}

func TestBarsTellValues(t *testing.T) {
	doc := parseSVG(t, drawSVG(t, cases()["bars"]))
	for _, want := range []string{"lru", "online", "online+spec", "optimum (bound)", "0.323", "0.256", "0.089", "0.169", "67.7 %", "74.4 %", "91.1 %", "83.1 %"} {
		if got := doc.has(want); got != 1 {
			t.Errorf("%q: got %d, want 1", want, got)
		}
	}
	if got := doc.has("cache: 25 % of all experts"); got != 2 {
		t.Errorf("got the cache share %d times, want it under both panels", got)
	}
}

func TestPanels(t *testing.T) {
	for name, want := range map[string]string{
		"lines":   "[Exposed stall ÷ compute, ratio 1 Hits]",
		"ratios":  "[Exposed stall ÷ compute, ratio 0.5 Hits, ratio 0.5 Exposed stall ÷ compute, ratio 2 Hits, ratio 2]",
		"keeping": "[Exposed stall ÷ compute, ratio 0.5 Exposed stall ÷ compute, ratio 1 Hits]",
	} {
		f, err := arrange(cases()[name].Points)
		if err != nil {
			t.Fatal(err)
		}
		var titles []string
		doc := parseSVG(t, drawSVG(t, cases()[name]))
		for _, p := range f.panels() {
			titles = append(titles, p.title)
			if doc.has(p.title) != 1 {
				t.Errorf("%s: got no panel %q, want one", name, p.title)
			}
		}
		if got := fmt.Sprint(titles); got != want {
			t.Errorf("%s: got panels %v, want %v", name, got, want)
		}
	}
}

func TestPNG(t *testing.T) {
	d := cases()["lines"]
	var b bytes.Buffer
	if err := Simulation(&b, "png", d); err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	size := image.Bounds().Size()
	if want := int(math.Round(parseSVG(t, drawSVG(t, d)).height * 1800 / 675)); size.X != 1800 || size.Y != want {
		t.Errorf("got %v pixels, want 1800 x %d", size, want)
	}
	seen, sampled := map[color.NRGBA]int{}, 0
	for y := 0; y < size.Y; y += 3 { // lines are 4 wide
		for x := 0; x < size.X; x += 3 {
			seen[color.NRGBAModel.Convert(image.At(x, y)).(color.NRGBA)]++
			sampled++
		}
	}
	if white := seen[paper]; white < sampled*3/4 {
		t.Errorf("got %d of %d pixels white, want most", white, sampled)
	}
	for _, want := range []color.NRGBA{palette[0], palette[1], boundColors[0]} {
		if seen[want] == 0 {
			t.Errorf("got no pixel in the colour %v, want the lines of lru, online and optimum", want)
		}
	}
}

func TestSameDataSamePicture(t *testing.T) {
	for _, format := range []string{"svg", "png"} {
		pictures := make([]bytes.Buffer, 2)
		var group sync.WaitGroup
		for i := range pictures {
			group.Go(func() {
				if err := Simulation(&pictures[i], format, cases()["bars"]); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		for i := range pictures {
			if !bytes.Equal(pictures[i].Bytes(), pictures[0].Bytes()) {
				t.Errorf("%s: drawing %d differs from the first, want the same bytes", format, i)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	with := func(change func(p *Point)) []Point {
		points := measured()
		change(&points[2])
		return points
	}
	runs := make([]string, maxRuns+1)
	for i := range runs {
		runs[i] = fmt.Sprint("run", i)
	}
	many := make([]float64, maxShares+1)
	for i := range many {
		many[i] = float64(i+1) / float64(len(many))
	}
	nan, one := math.NaN(), []float64{1}
	for _, c := range []struct {
		format string
		points []Point
		want   string
	}{
		{"svg", nil, "no points"},
		{"pdf", measured(), `format "pdf"`},
		{"", measured(), "want svg or png"},
		{"svg", with(func(p *Point) { p.Run = "" }), `point 2 (run ""): has no name`},
		{"svg", with(func(p *Point) { p.CacheShare = nan }), `point 2 (run "online+spec"): cache share is NaN`},
		{"svg", with(func(p *Point) { p.CacheShare = 0 }), "cache share is 0"},
		{"svg", with(func(p *Point) { p.CacheShare = 1.5 }), "cache share is 1.5"},
		{"svg", with(func(p *Point) { p.Ratio = nan }), "ratio is NaN"},
		{"svg", with(func(p *Point) { p.Ratio = -1 }), "ratio is -1"},
		{"svg", with(func(p *Point) { p.Hits = nan }), "hits are NaN"},
		{"svg", with(func(p *Point) { p.Hits = 1.01 }), "hits are 1.01"},
		{"png", with(func(p *Point) { p.StallOverCompute = nan }), "stall over compute is NaN"},
		{"png", with(func(p *Point) { p.StallOverCompute = math.Inf(1) }), "stall over compute is +Inf"},
		{"svg", append(measured(), Point{"lru", 0.25, 1, 0.5, 0.5}), `point 12: run "lru" has two results`},
		{"svg", made(runs, []float64{0.5}, one), "at most 32 runs"},
		{"svg", made([]string{"lru"}, one, many[:maxRatios+1]), "8 ratios"},
		{"svg", made([]string{"lru"}, many, one), "256 cache shares"},
	} {
		var b bytes.Buffer
		err := Simulation(&b, c.format, Data{Points: c.points})
		if err == nil || !strings.HasPrefix(err.Error(), "plots: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
		if b.Len() > 0 {
			t.Errorf("%q: got %d bytes, want nothing written", c.want, b.Len())
		}
	}
	if err := Simulation(&bytes.Buffer{}, "svg", Data{Points: append(measured(), measured()...)}); err != nil {
		t.Errorf("got %v, want the same results twice drawn once", err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrorSurfaces(t *testing.T) {
	full := errors.New("no space left")
	if err := Simulation(brokenWriter{full}, "svg", cases()["lines"]); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

func TestFormat(t *testing.T) {
	for path, want := range map[string]string{"a.svg": "svg", "dir.x/b.PNG": "png", ".svg": "svg"} {
		if got, err := Format(path); got != want || err != nil {
			t.Errorf("%s: got %q and %v, want %q", path, got, err, want)
		}
	}
	for _, path := range []string{"", "svg", "a.pdf", "a.svg/b", "a.svg.gz"} {
		if got, err := Format(path); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", path)) || !strings.Contains(err.Error(), ".svg or .png") {
			t.Errorf("%q: got %q and %v, want an error that names it and the endings", path, got, err)
		}
	}
}

// Whatever is drawn is well-formed, and lies within the picture.
func FuzzSimulation(f *testing.F) {
	f.Add("title", "lru", "online+spec", 0.25, 1.0, 0.5, 0.3)
	f.Add("\x00<&>", "\xff", "+next", 1e-300, 1e9, 1.0, 1e9)
	f.Add("", "optimum", "optimum+", 1.0, 1e-300, 0.0, 5e-324)
	f.Fuzz(func(t *testing.T, title, run, other string, share, ratio, hits, stall float64) {
		d := Data{Title: title, Subtitle: run, Points: []Point{
			{run, share, ratio, hits, stall}, {other, share, ratio, hits, stall / 2}, {run, share / 3, ratio, hits / 3, stall},
		}}
		for _, points := range [][]Point{d.Points, d.Points[:1]} {
			d.Points = points
			var b bytes.Buffer
			if err := Simulation(&b, "svg", d); err != nil {
				continue
			}
			doc := parseSVG(t, b.String())
			for _, box := range doc.texts {
				if box.left < 0 || box.right > doc.width {
					t.Errorf("%q lies at %v…%v of %v", box.text, box.left, box.right, doc.width)
				}
			}
		}
	})
}
