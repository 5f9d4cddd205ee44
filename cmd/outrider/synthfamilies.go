package main

import (
	"context"
	"io"

	"outrider/internal/synthckpt"
	"outrider/internal/tables"
)

type synthFamiliesCmd struct{}

func (synthFamiliesCmd) Help() string {
	return "A family that is published in both formats stands twice." + statusHelp
}

// familyList is what --json prints.
type familyList struct {
	Families []synthckpt.Info `json:"families"`
}

// Run lists the families that synth checkpoint knows.
func (synthFamiliesCmd) Run(_ context.Context, a *app) error {
	families, err := synthckpt.Families()
	if err != nil {
		return err
	}
	return a.print(familyList{families}, func(w io.Writer) {
		g := tables.NewGrid("family", "format", "models")
		for _, f := range families {
			g.Add(f.Name, f.Format, f.Models)
		}
		g.Print(w)
	})
}
