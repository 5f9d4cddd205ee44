package main

import (
	"context"
	"io"

	"outrider/internal/tables"
	"outrider/trace/importer"
)

type traceFormsCmd struct{}

func (traceFormsCmd) Help() string {
	return "A trace has tokens in order. A histogram counts uses: it can be described and converted, but not replayed." + statusHelp
}

// formList is what --json prints.
type formList struct {
	Forms []formSummary `json:"forms"`
}

type formSummary struct {
	Name      string `json:"name"`
	Tool      string `json:"tool"`
	Title     string `json:"title"`
	Histogram bool   `json:"histogram"`
}

// Run lists the forms of routing data.
func (traceFormsCmd) Run(_ context.Context, a *app) error {
	var list formList
	for _, f := range importer.Forms() {
		list.Forms = append(list.Forms, formSummary(f))
	}
	return a.print(list, func(w io.Writer) {
		g := tables.NewGrid("form", "tool", "holds", "what it is")
		for _, f := range list.Forms {
			holds := "trace"
			if f.Histogram {
				holds = "histogram"
			}
			g.Add(f.Name, f.Tool, holds, f.Title)
		}
		g.Print(w)
	})
}
