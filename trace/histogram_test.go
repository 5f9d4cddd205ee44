package trace

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func sampleHistogram() *Histogram {
	return &Histogram{
		Model: "m", Layers: 2, LayerIDs: []int{0, 7}, Experts: 3, TopK: 2, Unit: "tokens", Source: "s", Note: "n",
		Tables: []Counts{{"code", [][]float64{{1, 0, 2.5}, {0, 0, 1e9}}}, {"prose", [][]float64{{1, 2, 3}, {4, 5, 6}}}},
	}
}

func TestHistogramRoundTrip(t *testing.T) {
	want := sampleHistogram()
	for _, name := range []string{"h.json", "h.json.gz", "h.json.zst"} {
		path := filepath.Join(t.TempDir(), name)
		if err := want.Create(path); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadHistogram(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", name, diff)
		}
		if err := want.Create(path); !errors.Is(err, fs.ErrExist) {
			t.Errorf("%s again: got %v, want fs.ErrExist", name, err)
		}
	}
}

func TestHistogramDamage(t *testing.T) {
	for _, c := range []struct {
		name, text, want string
		is               error
	}{
		{"no JSON", "hello", "no histogram object", ErrNotTrace},
		{"another kind", `{"kind":"trace","tables":[]}`, `kind "trace"`, ErrNotTrace},
		{"no tables", `{"kind":"histogram","layers":1,"experts":1}`, "0 tables", ErrNotTrace},
		{"empty tables", `{"kind":"histogram","layers":1,"experts":1,"tables":[]}`, "no table", nil},
		{"cut", `{"kind":"histogram","layers":1,"exp`, "no histogram object", ErrNotTrace},
		{"rows missing", `{"kind":"histogram","layers":2,"experts":1,"tables":[{"counts":[[1]]}]}`, "has 1 rows", nil},
		{"ragged", `{"kind":"histogram","layers":1,"experts":2,"tables":[{"counts":[[1]]}]}`, "layer 0: 1 counts", nil},
		{"negative", `{"kind":"histogram","layers":1,"experts":2,"tables":[{"counts":[[1,-1]]}]}`, "the count is -1", nil},
		{"huge shape", `{"kind":"histogram","layers":1000000,"experts":2,"tables":[{"counts":[[1,1]]}]}`, "layers", nil},
		{"top-k above experts", `{"kind":"histogram","layers":1,"experts":2,"top_k":3,"tables":[{"counts":[[1,1]]}]}`, "top", nil},
	} {
		_, err := ReadHistogram(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", c.name, err, c.want)
		}
		var corrupt *CorruptError
		if c.is != nil && !errors.Is(err, c.is) || c.is == nil && !errors.As(err, &corrupt) {
			t.Errorf("%s: got %T %v, want %v or a CorruptError", c.name, err, err, c.is)
		}
	}
}

func FuzzReadHistogram(f *testing.F) {
	var b bytes.Buffer
	if err := sampleHistogram().Write(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(`{"kind":"histogram","layers":1,"experts":2,"tables":[{"counts":[[1,1]]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ReadHistogram(bytes.NewReader(data))
		if err == nil && h.Validate() != nil {
			t.Errorf("read a histogram that is none: %v", h.Validate())
		}
	})
}

func TestHeaderFactsRoundTrip(t *testing.T) {
	for _, h := range []Header{
		{}, {IDs: IDsLogical, Ranked: Yes, Sequences: No}, {IDs: IDsPhysical, Ranked: No, Sequences: Yes},
	} {
		h.Model, h.Shape.Layers, h.Shape.Experts, h.Shape.TopK = "m", 1, 4, 2
		for _, name := range []string{"t.trace", "t.jsonl"} {
			path := filepath.Join(t.TempDir(), name)
			w, err := Create(path, h)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Append(&Activation{Token: -1, Experts: []int32{3, 1}}), w.Close()); err != nil {
				t.Fatal(err)
			}
			f, err := OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got := f.Header()
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(h, got); diff != "" {
				t.Errorf("%s: want -, got +\n%s", name, diff)
			}
		}
	}
	bad := Header{IDs: 3}
	bad.Shape.Layers, bad.Shape.Experts, bad.Shape.TopK = 1, 4, 2
	if err := bad.Validate(); err == nil {
		t.Error("a header whose id space is 3: got nil, want an error")
	}
}
