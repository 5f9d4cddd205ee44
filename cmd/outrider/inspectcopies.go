package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"outrider/layout"
)

// inspectedCopies are the second copies of a store's records.
type inspectedCopies struct {
	Records int     `json:"records"` // that have one which can be read
	Share   float64 `json:"share"`   // of all records, 0 to 1
	Bytes   int64   `json:"bytes"`   // with padding and index
	Lanes   []int   `json:"lanes"`   // that hold copies, by number
	Unused  string  `json:"unused,omitempty"`

	names []string // of the lanes that hold copies
}

// inspectCopies is nil for a store that was built without copies.
func inspectCopies(store *layout.Store) *inspectedCopies {
	state := store.Copies()
	if state.Lanes == nil && state.Reason == "" {
		return nil
	}
	out := &inspectedCopies{
		Records: state.Records, Share: float64(state.Records) / float64(store.Shape().Count()), Bytes: state.Bytes, Lanes: []int{}, Unused: state.Reason,
	}
	for i, lane := range state.Lanes {
		if lane.Pieces > 0 {
			out.Lanes = append(out.Lanes, i)
			out.names = append(out.names, filepath.Base(store.Lanes()[i].Path))
		}
	}
	return out
}

// text is the line of the report.
func (c *inspectedCopies) text() string {
	var parts []string
	if c.Records > 0 {
		parts = append(parts, fmt.Sprintf("%.1f %% of the records (%d) lie a second time, %s beside %s", 100*c.Share, c.Records, sizeText(c.Bytes), strings.Join(c.names, " and ")))
	}
	if c.Unused != "" {
		parts = append(parts, c.Unused)
	}
	return strings.Join(parts, "; ")
}
