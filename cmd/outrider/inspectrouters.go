package main

import (
	"errors"
	"fmt"
	"strings"

	"outrider/layout"
)

// inspectedRouters are the router matrices, which look-ahead needs.
type inspectedRouters struct {
	Bytes   int64          `json:"bytes"` // in memory, as float32
	Width   int            `json:"width"`
	Scoring layout.Scoring `json:"scoring"`
	Biased  bool           `json:"selection_bias"`
	Groups  int            `json:"groups,omitempty"`
	Used    int            `json:"groups_used,omitempty"`
	// Normalised: the weights of the chosen are scaled to sum 1; Scale is what they are
	// multiplied by then.
	Normalised bool    `json:"normalised"`
	Scale      float64 `json:"scale"`
	Hashed     int     `json:"hashed_layers,omitempty"` // that choose by the token's number
	Missing    string  `json:"missing,omitempty"`       // why there are none
}

func inspectRouters(source layout.Source) *inspectedRouters {
	from, ok := source.(layout.RouterSource)
	if !ok {
		return nil
	}
	r, err := from.Routers()
	switch {
	case errors.Is(err, layout.ErrNoRouters):
		_, reason, _ := strings.Cut(err.Error(), layout.ErrNoRouters.Error()+": ")
		return &inspectedRouters{Missing: reason}
	case err != nil:
		return &inspectedRouters{Missing: err.Error()}
	}
	out := &inspectedRouters{Bytes: r.Bytes(), Width: r.Width, Scoring: r.Scoring, Groups: r.Groups, Used: r.GroupsUsed,
		Normalised: r.Normalised, Scale: r.Scale}
	for i := range r.Layers {
		out.Biased = out.Biased || r.Layers[i].Selection.Type != ""
		if r.Layers[i].Hash.Type != "" {
			out.Hashed++
		}
	}
	return out
}

// text is the line of the report.
func (r *inspectedRouters) text() string {
	if r.Missing != "" {
		return "none: " + r.Missing
	}
	out := fmt.Sprintf("%s, width %d, %s", sizeText(r.Bytes), r.Width, r.Scoring)
	if r.Biased {
		out += ", selection bias"
	}
	if r.Groups > 1 {
		out += fmt.Sprintf(", %d of %d groups", r.Used, r.Groups)
	}
	if r.Normalised {
		out += ", weights of sum 1"
	}
	if r.Scale != 0 && r.Scale != 1 {
		out += fmt.Sprintf(", times %g", r.Scale)
	}
	if r.Hashed > 0 {
		out += fmt.Sprintf(", %s by the token's number", countText(r.Hashed, "layer"))
	}
	return out + ": look-ahead works"
}
