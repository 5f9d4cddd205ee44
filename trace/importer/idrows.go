package importer

import (
	"fmt"
	"strconv"
)

// idRows is a JSON array of rows of integers, [[3,1],[0,2]], kept flat: nested
// slices would take many times the text's size. All rows have one width.
type idRows struct {
	ids   []int32
	rows  int
	width int
}

// rowsError says in what way JSON is no rows of ids.
type rowsError struct{ reason string }

func (e *rowsError) Error() string { return e.reason }

func badRows(format string, args ...any) error {
	return &rowsError{fmt.Sprintf(format, args...)}
}

// row is one of the rows.
func (r *idRows) row(i int) []int32 { return r.ids[i*r.width : (i+1)*r.width] }

// UnmarshalJSON reads text that encoding/json has found to be valid JSON.
func (r *idRows) UnmarshalJSON(text []byte) error {
	*r = idRows{ids: r.ids[:0]}
	depth, width := 0, 0
	for at := 0; at < len(text); at++ {
		switch c := text[at]; c {
		case ' ', '\t', '\r', '\n', ',':
		case '[':
			if depth++; depth > 2 {
				return badRows("row %d holds an array, want a number", r.rows)
			}
			width = 0
		case ']':
			if depth--; depth == 0 {
				continue
			}
			if r.rows > 0 && width != r.width {
				return badRows("ragged: row %d has %d ids, but the rows before have %d", r.rows, width, r.width)
			}
			r.width = width
			r.rows++
		default:
			if depth != 2 {
				return badRows("want an array of rows of expert ids")
			}
			end := at
			for end < len(text) && text[end] != ',' && text[end] != ']' && text[end] > ' ' {
				end++
			}
			id, err := strconv.ParseInt(string(text[at:end]), 10, 32)
			if err != nil {
				return badRows("row %d: %.20q is no expert id", r.rows, text[at:end])
			}
			r.ids = append(r.ids, int32(id))
			width++
			at = end - 1
		}
	}
	return nil
}
