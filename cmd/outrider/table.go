package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// grid is a table for people. Columns of numbers are set to the right.
type grid struct {
	header []string
	rows   [][]string
}

func newGrid(header ...string) *grid { return &grid{header: header} }

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

func (g *grid) writeTo(w io.Writer) {
	t := table.NewWriter()
	t.SetStyle(plainStyle())
	t.AppendHeader(tableRow(g.header))
	for _, row := range g.rows {
		t.AppendRow(tableRow(row))
	}
	configs := make([]table.ColumnConfig, len(g.header))
	for i := range configs {
		configs[i] = table.ColumnConfig{Number: i + 1}
		if g.numbers(i) {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.SetColumnConfigs(configs)
	writeTrimmed(w, t.Render())
}

// numbers reports whether all cells of a column are numbers or empty.
func (g *grid) numbers(column int) bool {
	for _, row := range g.rows {
		if cell := row[column]; cell != "" && cell != "-" && !strings.ContainsAny(cell[:1], "0123456789") {
			return false
		}
	}
	return true
}

// fields are names and values, one a line. An empty value leaves the line out.
type fields [][2]string

func (f *fields) add(name, format string, args ...any) {
	*f = append(*f, [2]string{name, fmt.Sprintf(format, args...)})
}

func (f fields) writeTo(w io.Writer) {
	width := 0
	for _, field := range f {
		if field[1] != "" {
			width = max(width, len(field[0]))
		}
	}
	for _, field := range f {
		if field[1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", width, field[0], field[1])
		}
	}
}

// plainStyle has a line under the header and nothing else, and keeps the
// header's case.
func plainStyle() table.Style {
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options = table.Options{SeparateHeader: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	return style
}

func tableRow(cells []string) table.Row {
	row := make(table.Row, len(cells))
	for i, c := range cells {
		row[i] = c
	}
	return row
}

// writeTrimmed writes lines without blanks at their ends.
func writeTrimmed(w io.Writer, s string) {
	for line := range strings.Lines(s + "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}
