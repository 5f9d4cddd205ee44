package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"outrider/internal/costs"
	"outrider/internal/tables"
)

// summary is what --json prints.
type summary struct {
	Model       string      `json:"model"`
	About       string      `json:"about"` // llama.cpp's words
	Library     string      `json:"library"`
	Mode        string      `json:"mode"`
	BudgetBytes int64       `json:"budget_bytes,omitempty"`
	ExpertBytes int64       `json:"expert_bytes,omitempty"`
	DenseBytes  int64       `json:"dense_bytes,omitempty"`
	Texts       []generated `json:"texts,omitempty"`
	Forced      *forcedText `json:"forced,omitempty"`
	Prompt      figures     `json:"prompt"`
	Decode      figures     `json:"decode"`
	PeakBytes   int64       `json:"peak_bytes"` // resident memory of the process at most
	Direct      bool        `json:"direct,omitempty"`
	Engine      string      `json:"engine,omitempty"`
	Note        string      `json:"note,omitempty"`
}

type figures = costs.Figures

// run opens the model, generates or forces, and says what it took.
func (c *command) run(ctx context.Context, stdout io.Writer) (err error) {
	prompts, err := c.check()
	if err != nil {
		return err
	}
	a, err := c.open(ctx, max(len(prompts), 1))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	var m *measured
	if c.ForceText != "" {
		m, err = a.force(ctx, c.ForceText, c.WarmUp, c.Tokens)
	} else {
		m, err = a.generate(ctx, prompts, c.PromptTokens, c.Tokens, c.reader(prompts, stdout))
	}
	if err != nil {
		return err
	}
	return c.summarise(a, m).print(stdout, c.JSON)
}

// check looks at what the parser cannot.
func (c *command) check() (prompts []string, err error) {
	if prompts, err = c.prompts(); err != nil {
		return nil, err
	}
	stock := c.Mode == "mmap" || c.Mode == "resident"
	switch {
	case c.ForceText == "" && len(prompts) == 0:
		return nil, usagef("nothing to do: give --prompt, --prompt-file or --force-text")
	case c.ForceText != "" && len(prompts) > 0:
		return nil, usagef("--force-text takes the place of prompts: leave one of them out")
	case c.Tokens < 0 || c.Tokens == 0 && c.ForceText == "":
		return nil, usagef("-n is %d, want 1 token or more", c.Tokens)
	case c.WarmUp < 0 || c.WarmUp > 0 && c.ForceText == "":
		return nil, usagef("--warm-up is %d, want 0 or more tokens of --force-text", c.WarmUp)
	case c.Context < 2 || c.Batch < 1 || c.Threads < 0 || c.PromptTokens < 0:
		return nil, usagef("--context, --batch, --threads and --prompt-tokens are %d, %d, %d and %d: want at least 2, 1, 0 and 0", c.Context, c.Batch, c.Threads, c.PromptTokens)
	case stock && (c.Store != "" || c.TraceOut != "" || c.Lock || c.Overlap):
		return nil, usagef("--store, --trace-out, --lock and --overlap have no meaning with --mode %s, in which llama.cpp is alone", c.Mode)
	}
	return prompts, nil
}

// reader streams the text, prompt first, unless it goes into a JSON object.
func (c *command) reader(prompts []string, out io.Writer) func(string) error {
	if c.JSON {
		return nil
	}
	begun := false
	return func(text string) error {
		if !begun {
			begun, text = true, prompts[0]+text
		}
		_, err := io.WriteString(out, text)
		return err
	}
}

func (c *command) summarise(a *arm, m *measured) *summary {
	s := &summary{
		Model: c.Model, About: a.model.About, Library: a.model.Library(), Mode: c.Mode, Texts: m.texts, Forced: m.forced,
		Prompt: m.prompt.Figures(), Decode: m.decode.Figures(), PeakBytes: peakMemory(),
	}
	if a.stream == nil {
		return s
	}
	stats := a.stats()
	s.BudgetBytes, s.ExpertBytes, s.DenseBytes = stats.Budget, a.stream.ExpertBytes, a.stream.DenseBytes
	s.Direct, s.Note = true, a.stream.Note
	for _, lane := range stats.Lanes {
		s.Direct = s.Direct && lane.Direct
		s.Engine = lane.Engine
	}
	return s
}

func (s *summary) print(w io.Writer, asJSON bool) error {
	var b strings.Builder
	if asJSON {
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(s); err != nil {
			return err
		}
	} else {
		s.writeTo(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *summary) writeTo(w io.Writer) {
	if len(s.Texts) > 1 {
		for _, t := range s.Texts {
			fmt.Fprintf(w, "%s%s\n\n", t.Prompt, t.Text)
		}
	}
	fmt.Fprintf(w, "\n\n%s, llama.cpp %s, mode %s", s.About, s.Library, s.Mode)
	if s.ExpertBytes > 0 {
		fmt.Fprintf(w, ": experts %s, of which %s in memory (%.0f %%), other weights %s",
			size(s.ExpertBytes), size(s.BudgetBytes), 100*float64(s.BudgetBytes)/float64(s.ExpertBytes), size(s.DenseBytes))
	}
	fmt.Fprintln(w)
	if s.Note != "" {
		fmt.Fprintln(w, s.Note)
	}
	fmt.Fprintln(w)
	g := tables.NewGrid("", "tokens", "tokens/s", "stall/token", "hits", "read/token", "read ahead", "useful", "late", "wasted")
	for _, row := range []struct {
		name string
		f    figures
	}{{"prompt", s.Prompt}, {"decode", s.Decode}} {
		if row.f.Tokens > 0 {
			g.Add(s.row(row.name, row.f)...)
		}
	}
	g.Print(w)
	fmt.Fprintf(w, "\nmemory: %s at most (resident set of the process)\n", size(s.PeakBytes))
	if s.Forced != nil {
		fmt.Fprintf(w, "teacher-forced: %d passages of given text, one token at a time, %d tokens before the measurement; perplexity %.3f, digest %s\n", s.Forced.Passages, s.Forced.WarmUp, s.Forced.Perplexity, s.Forced.Digest)
	} else {
		fmt.Fprintln(w, "the text is the model's own, greedy; small models repeat themselves, which flatters every cache: --force-text does not")
	}
}

// row leaves out what llama.cpp alone does not tell.
func (s *summary) row(name string, f figures) []string {
	row := []string{name, fmt.Sprint(f.Tokens), fmt.Sprintf("%.1f", f.TokensPerSecond)}
	if s.ExpertBytes == 0 {
		return append(row, "", "", "", "", "", "", "")
	}
	return append(row, fmt.Sprintf("%.2f ms", f.StallPerToken/1e3), fmt.Sprintf("%.1f %%", 100*f.Hits), size(int64(f.BytesPerToken)),
		fmt.Sprintf("%.1f", f.SpeculativeReadsPerToken), fmt.Sprint(f.Useful), fmt.Sprint(f.Late), fmt.Sprint(f.Wasted))
}

func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// peakMemory is the most memory that the process had resident; 0 where the system does
// not tell.
func peakMemory() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}
