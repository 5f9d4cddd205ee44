package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/router"
)

// forecastOf saves a forecast that has learned nothing, for a shape.
func forecastOf(t *testing.T, shape layout.Shape) []byte {
	t.Helper()
	p, err := router.NewOnline(shape, router.OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := router.Save(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// alone fails if a folder holds anything but the file.
func alone(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(path) {
		t.Errorf("got %v, %v in the folder, want %s alone", entries, err, filepath.Base(path))
	}
}

func TestRunSavesItsForecastAndGoesOnFromIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.forecast")
	args := []string{"run", modelFile, "--prompt", "In the beginning", "-n", "8", "--forecast", path}
	first := decode[runSummary](t, args...)
	if f := first.Forecast; f == nil || f.Loaded || f.Path != path || f.Bytes < 1000 {
		t.Fatalf("first run: got %+v, want a file of some size, begun from nothing", first.Forecast)
	}
	learned, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	second := decode[runSummary](t, args...)
	if f := second.Forecast; f == nil || !f.Loaded || second.Text != first.Text {
		t.Errorf("second run: got %+v and %q, want one that goes on, and the same text", second.Forecast, second.Text)
	}
	now, err := os.ReadFile(path)
	if err != nil || bytes.Equal(now, learned) {
		t.Errorf("second run: got the same file (%v), want more learned", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("second run: got mode %v, %v, want that of the file before", info.Mode(), err)
	}
	alone(t, path)
	if out := succeed(t, args...); !strings.Contains(out, "gone on from there") {
		t.Errorf("got %q, want the file named", out)
	}
	if first := decode[runSummary](t, args[:6]...); first.Forecast != nil {
		t.Errorf("without --forecast: got %+v, want nothing", first.Forecast)
	}
}

func TestRunFollowsALinkToItsForecast(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink("real", link); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "real"), forecastOf(t, layout.Shape{Layers: 8, Experts: 32, TopK: 4}), 0o666); err != nil {
		t.Fatal(err)
	}
	succeed(t, "run", modelFile, "--prompt", "x", "-n", "2", "--forecast", link)
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("got %v, %v, want the link as it was", info, err)
	}
}

func TestRunInterruptedSavesItsForecast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tiny.forecast")
	ctx, out := canceller(t)
	status := run(ctx, []string{"run", modelFile, "--prompt", "In the beginning", "-n", "400", "--forecast", path}, out, io.Discard)
	if status != exitInterrupted {
		t.Errorf("got status %d, want 130", status)
	}
	if _, err := readForecast(path, layout.Shape{Layers: 8, Experts: 32, TopK: 4}); err != nil {
		t.Errorf("got %v, want a forecast", err)
	}
	alone(t, path)
}

func TestForecastErrorsGolden(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := forecastOf(t, layout.Shape{Layers: 8, Experts: 32, TopK: 4})
	next := bytes.Clone(good)
	next[8] = 99
	var out strings.Builder
	unchanged(t, func() {
		for _, c := range []struct {
			path   string
			status int
			more   []string
		}{
			{write("letter.txt", []byte("Dear Sir, this is no forecast.\n")), exitInput, nil},
			{write("cut", good[:20]), exitInput, nil},
			{write("next", next), exitInput, nil},
			{write("other", forecastOf(t, layout.Shape{Layers: 24, Experts: 32, TopK: 4})), exitInput, nil},
			{dir, exitInput, nil},
			{filepath.Join(dir, "missing", "file"), exitInput, nil},
			{filepath.Join(dir, "new"), exitUsage, []string{"--policy", "lru"}},
		} {
			got := invoke(t, append([]string{"run", modelFile, "--prompt", "x", "-n", "2", "--forecast", c.path}, c.more...)...)
			if got.status != c.status {
				t.Errorf("%s: got status %d (%s), want %d", c.path, got.status, got.stderr, c.status)
			}
			fmt.Fprintf(&out, "%s\n%s[%d]\n\n", settle(c.path, dir), settle(got.stderr, dir), got.status)
		}
	}, modelFile)
	golden(t, "forecast-errors", out.String())
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("got a file, want none for a call with wrong arguments")
	}
}

func TestRunSaysThatTheForecastCannotBeSaved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	f := &forecastFile{path: filepath.Join(dir, "tiny.forecast"), shape: layout.Shape{Layers: 1, Experts: 2, TopK: 1}}
	p, err := router.NewOnline(f.shape, router.OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.save(t.Context(), &app{stderr: io.Discard}, p); err == nil || !strings.Contains(err.Error(), f.path) {
		t.Errorf("got %v, want an error that names the file", err)
	}
	if f.summary != nil {
		t.Errorf("got %+v, want none", f.summary)
	}
}
