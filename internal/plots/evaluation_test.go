package plots

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// evaluations are data of all shapes; a golden file exists of the first one.
func evaluations() map[string]EvaluationData {
	line := func(name string, bend float64, layers int) EvaluationLine {
		l := EvaluationLine{Name: name}
		for i := range 10 {
			score := (float64(i) + 0.5) / 10
			l.Reliability = append(l.Reliability, Reliability{Score: score, Used: math.Pow(score, bend)})
		}
		for i := range layers {
			l.Recall = append(l.Recall, 0.8-0.1*bend+0.1*math.Sin(float64(i)))
		}
		return l
	}
	long := strings.Repeat("long ", 50)
	var many []EvaluationLine
	for i := range maxRuns {
		many = append(many, line(fmt.Sprint("predictor ", i), 1, 61))
	}
	return map[string]EvaluationData{
		"evaluation": {Title: "openai/gpt-oss-20b", Subtitle: "24 layers x 32 experts, top 4, 3,000 tokens", Lines: []EvaluationLine{
			line("online", 1.05, 24), line("online, no ids", 1.1, 24), line("transition", 1.6, 24), line("recency", 1.9, 24), line("oracle", 1, 24),
		}},
		"one layer":  {Lines: []EvaluationLine{line("online", 1, 1)}},
		"no points":  {Title: "no points", Lines: []EvaluationLine{{Name: "online"}, line("matrix", 1, 8)}},
		"many":       {Title: "many", Lines: many},
		"long":       {Title: long, Subtitle: long, Lines: []EvaluationLine{line(long, 1, 3), line(long+", saved", 2, 300)}},
		"two layers": {Lines: []EvaluationLine{line("learned", 2, 2)}},
	}
}

func drawEvaluation(t testing.TB, d EvaluationData) string {
	t.Helper()
	var b bytes.Buffer
	if err := Evaluation(&b, "svg", d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestEvaluationGolden(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("others may fuse multiplication and addition, and round the last digit differently")
	}
	got, file := drawEvaluation(t, evaluations()["evaluation"]), filepath.Join("testdata", "evaluation.svg")
	isGolden(t, file, got)
	if again := drawEvaluation(t, evaluations()["evaluation"]); again != got {
		t.Error("the second drawing differs, want the same bytes")
	}
}

func TestEvaluationTextsStayApart(t *testing.T) {
	for name, d := range evaluations() {
		textsApart(t, name, parseSVG(t, drawEvaluation(t, d)))
	}
}

func TestEvaluationLooks(t *testing.T) {
	d := evaluations()["evaluation"]
	doc := parseSVG(t, drawEvaluation(t, d))
	count := doc.drawn
	// Each in both panels and in the legend.
	for _, c := range []struct {
		what string
		got  int
	}{
		{"online, solid", count("stroke:#D55E00") - count("stroke:#D55E00", "dasharray")},
		{"online, no ids, dashed", count("stroke:#D55E00", "stroke-dasharray:5,2.5")},
		{"recency in the colour of its run", count("stroke:" + hex(palette[3]))},
		{"oracle, dotted", count("stroke:#808080", "stroke-dasharray:1.5,2")},
	} {
		if c.got != 3 {
			t.Errorf("%s: got %d, want 3", c.what, c.got)
		}
	}
	for _, want := range []string{"online", "online, no ids", "transition", "recency", "oracle (bound)", "Share that came true, by score", "Recall@K of the next layer, by layer", evaluationKey} {
		if got := doc.has(want); got != 1 {
			t.Errorf("%q: got %d, want 1", want, got)
		}
	}
}

func hex(c interface{ RGBA() (r, g, b, a uint32) }) string {
	r, g, b, _ := c.RGBA()
	return fmt.Sprintf("#%02X%02X%02X", r>>8, g>>8, b>>8)
}

func TestLayerTicks(t *testing.T) {
	for layers, want := range map[int]string{0: "[0]", 1: "[0]", 2: "[0 1]", 9: "[0 1 2 3 4 5 6 7 8]", 10: "[0 2 4 6 8]", 24: "[0 5 10 15 20]", 61: "[0 10 20 30 40 50 60]", 4096: "[0 500 1000 1500 2000 2500 3000 3500 4000]"} {
		var got []string
		for _, tick := range layerTicks(layers) {
			got = append(got, tick.Label)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%d layers: got %v, want %v", layers, got, want)
		}
	}
}

func TestEvaluationErrors(t *testing.T) {
	nan := math.NaN()
	lines := func(change func(l *EvaluationLine)) []EvaluationLine {
		d := evaluations()["evaluation"]
		change(&d.Lines[2])
		return d.Lines
	}
	fine := lines(func(*EvaluationLine) {})
	for _, c := range []struct {
		format string
		lines  []EvaluationLine
		want   string
	}{
		{"svg", nil, "0 predictors"},
		{"pdf", fine, `format "pdf"`},
		{"svg", append(evaluations()["many"].Lines, fine...), "want 1 to 32"},
		{"svg", lines(func(l *EvaluationLine) { l.Name = "" }), `line 2 (predictor ""): has no name`},
		{"svg", lines(func(l *EvaluationLine) { l.Name = "online" }), `line 2: there are two of the predictor "online"`},
		{"svg", lines(func(l *EvaluationLine) { l.Recall[3] = nan }), "recall of layer 3 is NaN"},
		{"svg", lines(func(l *EvaluationLine) { l.Recall = make([]float64, maxLayers+1) }), "4097 layers"},
		{"png", lines(func(l *EvaluationLine) { l.Reliability[0].Score = -1 }), "of score -1"},
		{"png", lines(func(l *EvaluationLine) { l.Reliability[0].Used = nan }), "came true is NaN"},
	} {
		var b bytes.Buffer
		err := Evaluation(&b, c.format, EvaluationData{Lines: c.lines})
		if err == nil || !strings.HasPrefix(err.Error(), "plots: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
		if b.Len() > 0 {
			t.Errorf("%q: got %d bytes, want nothing written", c.want, b.Len())
		}
	}
	full := errors.New("no space left")
	if err := Evaluation(brokenWriter{full}, "png", EvaluationData{Lines: fine}); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}
