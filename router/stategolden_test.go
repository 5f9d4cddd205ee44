package router

import (
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write golden files that are missing")

// goldenRevisions names the file of each predictor in testdata, by its newest
// revision. A file is written once and never anew: what was saved then must load.
var goldenRevisions = map[string]string{
	"transition":         "transition-1",
	"transition-history": "transition-history-1",
	"matrix":             "matrix-1",
	"frequency":          "frequency-1",
}

func TestGoldenStates(t *testing.T) {
	for name, file := range goldenRevisions {
		p, err := New(name, tiny)
		if err != nil {
			t.Fatal(err)
		}
		passes := synthetic(tiny, 60, 2)
		run(p.NewHistory(), tiny, passes[:40])
		path := filepath.Join("testdata", "state-v1", file+".forecast")
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			data = save(t, p)
			err = os.WriteFile(path, data, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := run(p.NewHistory(), tiny, passes[40:])
		got := run(loaded(t, data).NewHistory(), tiny, passes[40:])
		for i := range want {
			// Some processors round a product and a sum at once.
			if w, g := math.Float32frombits(want[i]), math.Float32frombits(got[i]); math.Abs(float64(w-g)) > 1e-4 {
				t.Errorf("%s: score %d is %v, want %v as learned anew", path, i, g, w)
				break
			}
		}
	}
}
