package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"outrider/internal/plots"
)

// writePlot draws into a file, in the format that its name asks for. One that is
// there already is replaced, as pictures are drawn again and again.
func writePlot(path string, draw func(w io.Writer, format string) error) error {
	format, err := plots.Format(path)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := draw(&picture, format); err != nil {
		return err
	}
	if err := os.WriteFile(path, picture.Bytes(), 0o666); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// writeRuns draws simulated or replayed runs.
func writeRuns(path string, d plots.Data) error {
	return writePlot(path, func(w io.Writer, format string) error { return plots.Simulation(w, format, d) })
}
