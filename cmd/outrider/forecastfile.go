package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"outrider/layout"
	"outrider/router"
)

// forecastFile is where a forecast is kept from one run to the next.
type forecastFile struct {
	path      string // empty: nowhere
	shape     layout.Shape
	predictor router.Predictor // nil: there was no file, or none is wanted
	mode      fs.FileMode
	summary   *forecastSummary // nil: none was saved
}

// forecastSummary is what --json prints of it.
type forecastSummary struct {
	Path   string `json:"path"`
	Loaded bool   `json:"loaded"` // false: it began from nothing
	Bytes  int64  `json:"bytes"`
}

// String is one line for a person.
func (s *forecastSummary) String() string {
	began := "begun from nothing"
	if s.Loaded {
		began = "gone on from there"
	}
	return fmt.Sprintf("%s, %s, %s", s.Path, sizeText(s.Bytes), began)
}

// openForecast loads the file if it is there. Where it could not be saved later,
// that is an error now.
func openForecast(path string, shape layout.Shape) (*forecastFile, error) {
	f := &forecastFile{path: path, shape: shape, mode: 0o644}
	if path == "" {
		return f, nil
	}
	// The file itself is replaced in the end, not a link to it.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		f.path = target
	}
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if folder, err := os.Stat(filepath.Dir(f.path)); err != nil || !folder.IsDir() {
			return nil, inputf("--forecast: there is no folder %s: make it first", filepath.Dir(f.path))
		}
		return f, nil
	case err != nil:
		return nil, fmt.Errorf("--forecast: %w", err)
	case !info.Mode().IsRegular():
		return nil, inputf("--forecast: %s is not a file", path)
	}
	f.mode = info.Mode().Perm()
	if f.predictor, err = readForecast(f.path, shape); err != nil {
		return nil, inputf("--forecast: %s: %s: name another file, or remove it to begin anew", path, message(context.Background(), err))
	}
	return f, nil
}

func readForecast(path string, shape layout.Shape) (router.Predictor, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close() // nothing was written
	return router.LoadFor(bufio.NewReaderSize(in, 1<<16), shape)
}

// save replaces the file by what was learned. A call that was interrupted says so
// and no more: what goes wrong then is told here.
func (f *forecastFile) save(ctx context.Context, a *app, p router.Predictor) error {
	if f.path == "" || p == nil {
		return nil
	}
	size, err := fileWriter{
		mode:  f.mode,
		write: func(w io.Writer) error { return router.Save(w, p) },
		check: func(path string) error {
			_, err := readForecast(path, f.shape)
			return err
		},
	}.to(f.path)
	if err != nil {
		err = fmt.Errorf("--forecast: save %s: %w", f.path, err)
		if ctx.Err() != nil {
			a.warn(err.Error())
		}
		return err
	}
	f.summary = &forecastSummary{Path: f.path, Loaded: f.predictor != nil, Bytes: size}
	return nil
}
