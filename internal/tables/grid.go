package tables

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Grid is a table with a header. Columns of numbers are set to the right.
type Grid struct {
	header []string
	rows   [][]string
}

// NewGrid begins a table with a column for each name.
func NewGrid(header ...string) *Grid { return &Grid{header: header} }

// Add appends a row: a cell for each column.
func (g *Grid) Add(cells ...string) { g.rows = append(g.rows, cells) }

// Print writes the table, without blanks at the ends of its lines.
func (g *Grid) Print(w io.Writer) {
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
func (g *Grid) numbers(column int) bool {
	for _, row := range g.rows {
		if cell := row[column]; cell != "" && cell != "-" && !strings.ContainsAny(cell[:1], "0123456789") {
			return false
		}
	}
	return true
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
