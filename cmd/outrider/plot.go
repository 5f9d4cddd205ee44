package main

import (
	"bytes"
	"fmt"
	"os"

	"outrider/internal/plots"
)

// writePlot draws a plot into a file. One that is there already is replaced, as
// pictures are drawn again and again.
func writePlot(path string, d plots.Data) error {
	format, err := plots.Format(path)
	if err != nil {
		return err
	}
	var picture bytes.Buffer
	if err := plots.Simulation(&picture, format, d); err != nil {
		return err
	}
	if err := os.WriteFile(path, picture.Bytes(), 0o666); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}
