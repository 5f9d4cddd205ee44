package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// report prints the tables and writes the file.
func (b *bench) report(w io.Writer) error {
	var text strings.Builder
	b.found.writeTo(&text)
	_, err := io.WriteString(w, text.String())
	data, jsonErr := json.MarshalIndent(b.found, "", "  ")
	if jsonErr != nil {
		return errors.Join(err, jsonErr)
	}
	return errors.Join(err, os.WriteFile(b.Out, append(data, '\n'), 0o666))
}

func (f *findings) writeTo(w io.Writer) {
	fmt.Fprintf(w, "`bench %s`\n\n%s, llama.cpp %s, %d CPUs: dense weights %s, experts %s, least budget %s.\n\n",
		strings.Join(f.Arguments, " "), f.About, f.Library, f.CPUs, mb(f.Sizes.DenseBytes), mb(f.Sizes.ExpertBytes), mb(f.Sizes.FloorBytes))
	f.writeRows(w, speed)
	fmt.Fprintf(w, "\nSpeed is teacher-forced: passages of given text in turn (%s), decoded one token at a time, %s in a round (mmap: %s). "+
		"Figures are medians over %d rounds (least–most), ratios those of runs in the same round. "+
		"bound is max(time of resident, bytes per token ÷ raw rate just before and behind). MB are 10^6 bytes.\n",
		f.Text, behind(f.Tokens, f.WarmUp), behind(f.MmapTokens, min(f.WarmUp, f.MmapTokens)), f.Rounds)
	f.writeNotes(w)
	if f.has(prefill) {
		fmt.Fprintf(w, "\nPrefill:\n\n")
		f.writeRows(w, prefill)
	}
	fmt.Fprintln(w)
	rows := [][]string{{"wanted", "got", "reached"}}
	for _, d := range f.Demands {
		rows = append(rows, []string{d.Wanted, d.Got, d.Met})
	}
	writeMarkdown(w, rows)
	f.writeFailures(w)
}

// writeNotes says what one must know to judge the figures.
func (f *findings) writeNotes(w io.Writer) {
	how := "direct reads"
	if !f.Direct {
		how = "reads through the page cache, which makes the bound meaningless"
	}
	if f.Raw.N > 0 {
		fmt.Fprintf(w, "Raw rate: %.0f MB/s (%.0f–%.0f in %d slices), %s of an expert's size, best of %d depths.\n",
			f.Raw.Median/megabyte, f.Raw.Least/megabyte, f.Raw.Most/megabyte, f.Raw.N, how, len(rawDepths))
	}
	if f.Drift > 0 {
		fmt.Fprintf(w, "Drift: the first run, repeated last, had %.3f times its speed.\n", f.Drift)
	}
	if f.NoLimits != "" {
		fmt.Fprintf(w, "The mmap arm was left out and the others had no memory limit, since none can be set here: %s.\n", f.NoLimits)
	}
	if cached := f.cached(); cached > 0.01 {
		fmt.Fprintf(w, "Up to %.0f %% of the model stayed in the page cache before a run, which limits do not count: mmap looks faster than it is.\n", 100*cached)
	}
	for _, note := range f.notes() {
		fmt.Fprintf(w, "Note: %s\n", note)
	}
}

func (f *findings) writeRows(w io.Writer, purpose string) {
	rows := [][]string{{"budget", "arm", "memory limit", "tokens/s", "of resident", "of mmap", "of demand", "time ÷ bound", "hits", "read/token", "stall/token", "peak"}}
	for _, r := range f.Rows {
		if r.Purpose != purpose {
			continue
		}
		limit := "none"
		if r.LimitBytes > 0 {
			limit = mb(r.LimitBytes)
		}
		hits, read, stall := "", "", ""
		if r.Bytes.Most > 0 { // else all is in memory for good, and nothing is looked up
			hits, read, stall = fmt.Sprintf("%.1f %%", 100*r.Hits.Median), mb(int64(r.Bytes.Median)), fmt.Sprintf("%.2f ms", r.StallMicros.Median/1e3)
		}
		rows = append(rows, []string{r.Budget, r.Arm, limit, r.Rate.String(), r.OfResident.String(), r.OfMmap.String(), r.OfDemand.String(),
			r.OfBound.String(), hits, read, stall, mb(r.PeakBytes)})
	}
	if len(rows) == 1 {
		fmt.Fprintln(w, "Nothing of this was measured.")
		return
	}
	writeMarkdown(w, rows)
}

func (f *findings) has(purpose string) bool {
	for _, r := range f.Rows {
		if r.Purpose == purpose {
			return true
		}
	}
	return false
}

func (f *findings) cached() (most float64) {
	for _, e := range f.Runs {
		most = max(most, e.Cached)
	}
	return most
}

// notes are those of the command, and that the text was too short, each once.
func (f *findings) notes() (out []string) {
	add := func(note string) {
		if note != "" && !slices.Contains(out, note) {
			out = append(out, note)
		}
	}
	for _, e := range f.Runs {
		if e.Result == nil {
			continue
		}
		add(e.Result.Note)
		if got := e.Result.Decode.Tokens; e.Purpose == speed && got < int64(e.Tokens) {
			add(fmt.Sprintf("the text ended after %d of %d tokens.", got, e.Tokens))
		}
	}
	return out
}

func (f *findings) writeFailures(w io.Writer) {
	for _, e := range f.Runs {
		if e.Error != "" {
			fmt.Fprintf(w, "\nFailed: %s\n", e.Error)
		}
	}
}

// writeMarkdown writes a table, the first row of which is its header. Columns without
// a cell are left out.
func writeMarkdown(w io.Writer, rows [][]string) {
	for i, row := range rows {
		var line, rule []string
		for column, cell := range row {
			if empty(rows[1:], column) {
				continue
			}
			line, rule = append(line, strings.ReplaceAll(cell, "|", `\|`)), append(rule, "---")
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			fmt.Fprintf(w, "| %s |\n", strings.Join(rule, " | "))
		}
	}
}

func empty(rows [][]string, column int) bool {
	for _, row := range rows {
		if row[column] != "" {
			return false
		}
	}
	return true
}

// behind is "300", or "300 behind 100 that do not count".
func behind(tokens, warm int) string {
	if warm == 0 {
		return fmt.Sprint(tokens)
	}
	return fmt.Sprintf("%d behind %d that do not count", tokens, warm)
}

func mb(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/megabyte) }
