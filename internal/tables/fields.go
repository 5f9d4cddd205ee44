package tables

import (
	"fmt"
	"io"
)

// Fields are names and values, one a line. An empty value leaves the line out.
type Fields [][2]string

// Add appends a name and its value, formatted as by fmt.Sprintf.
func (f *Fields) Add(name, format string, args ...any) {
	*f = append(*f, [2]string{name, fmt.Sprintf(format, args...)})
}

// Print writes the lines, with the values below each other.
func (f Fields) Print(w io.Writer) {
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
