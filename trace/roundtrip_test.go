package trace

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"outrider/layout"
)

func TestRoundTrip(t *testing.T) {
	forms := map[string]func(io.Writer, Header) (Sink, error){
		"binary": func(w io.Writer, h Header) (Sink, error) { return NewWriter(w, h) },
		"jsonl":  func(w io.Writer, h Header) (Sink, error) { return NewJSONLWriter(w, h) },
	}
	for name, open := range forms {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			want := drawTrace(t)
			var b bytes.Buffer
			w, err := open(&b, want.Header)
			if err != nil {
				t.Fatalf("make the writer: %v", err)
			}
			pour(t, want, w)
			s, err := NewStream(&b)
			if err != nil {
				t.Fatalf("NewStream: %v", err)
			}
			got, err := ReadAll(s, 0)
			if err != nil {
				t.Fatalf("ReadAll: %v", err)
			}
			if d := diff(want, got); d != "" {
				t.Errorf("trace read back differs (-want +got):\n%s", d)
			}
		}))
	}
}

// Flushing at any moment changes the frames but not what they hold.
func TestFlushKeepsContent(t *testing.T) {
	want := skewed(t, layout.Shape{Layers: 3, Experts: 16, TopK: 4}, 500, false)
	var b bytes.Buffer
	w, err := NewWriter(&b, want.Header)
	if err != nil {
		t.Fatal(err)
	}
	var a Activation
	for i := range want.Len() {
		want.At(i, &a)
		if err := w.Append(&a); err != nil {
			t.Fatal(err)
		}
		if i%7 != 0 {
			continue
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		// What was flushed can be read while the writer goes on.
		r, err := NewReader(bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := drain(t, r); n != i+1 || !errors.Is(err, ErrTorn) {
			t.Fatalf("after Flush at token %d: got %d tokens and %v, want %d and ErrTorn", i, n, err, i+1)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadAll(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("trace read back differs (-want +got):\n%s", d)
	}
}

// The golden files are of format version 1 and never rewritten: if this fails,
// the format has changed and needs another version.
func TestGolden(t *testing.T) {
	want := small(t)
	golden, err := os.ReadFile(filepath.Join("testdata", "v1.trace"))
	if err != nil {
		t.Fatal(err)
	}
	if got := binaryOf(t, want); !bytes.Equal(got, golden) {
		t.Errorf("encoding changed:\ngot  %x\nwant %x", got, golden)
	}
	r, err := NewReader(bytes.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadAll(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("golden trace differs (-want +got):\n%s", d)
	}
}

func TestGoldenJSONL(t *testing.T) {
	want := strings.Join([]string{
		`{"model":"golden","layers":2,"experts":300,"top_k":2,"layer_ids":[1,3],"source":"made up","note":"2 layers of 300"}`,
		`{"seq":5,"pos":0,"phase":"prefill","experts":[[3,299],[0,1]],"weights":[[0.75,0.25],[0.5,0.5]],"token":71}`,
		`{"seq":5,"pos":1,"phase":"decode","experts":[[3],[]],"weights":[[1],[]],"token":-1}`,
		`{"seq":2,"pos":900,"experts":[[299,3],[7,0]],"weights":[[0.1,-2e-09],[0,3e+20]],"token":0}`,
	}, "\n") + "\n"
	if got := string(jsonlOf(t, small(t))); got != want {
		t.Errorf("JSON lines changed:\ngot  %s\nwant %s", got, want)
	}
}

func TestAppendRefuses(t *testing.T) {
	h := Header{Shape: layout.Shape{Layers: 1, Experts: 4, TopK: 2}, Phase: Decode, Weights: true}
	fit := Activation{Experts: []int32{0, 1}, Weights: []float32{1, 0}, Token: -1}
	tests := []struct {
		name  string
		spoil func(a *Activation)
		want  string
	}{
		{"sequence", func(a *Activation) { a.Seq = -1 }, "sequence -1 is negative"},
		{"position", func(a *Activation) { a.Pos = -2 }, "position -2 is negative"},
		{"phase", func(a *Activation) { a.Phase = 3 }, "phase 3 is none of"},
		{"other phase", func(a *Activation) { a.Phase = Prefill }, "header says that all tokens are decode"},
		{"token", func(a *Activation) { a.Token = -2 }, "token id is -2"},
		{"ragged", func(a *Activation) { a.Experts = a.Experts[:1] }, "there are 1 expert ids, want 1 layers of 2"},
		{"no weights", func(a *Activation) { a.Weights = nil }, "there are 0 gate weights"},
		{"too high", func(a *Activation) { a.Experts[1] = 4 }, "layer 0: expert id 4 is outside 0 to 3"},
		{"too low", func(a *Activation) { a.Experts[1] = -2 }, "expert id -2 is outside"},
		{"twice", func(a *Activation) { a.Experts[1] = 0 }, "expert id 0 is named twice"},
		{"after fill", func(a *Activation) { a.Experts[0] = -1 }, "stands after the row's end"},
		{"not finite", func(a *Activation) { a.Weights[1] = float32(math.Inf(1)) }, "gate weight +Inf is not a finite number"},
	}
	history, err := NewHistory(h.Shape)
	if err != nil {
		t.Fatal(err)
	}
	var b, j bytes.Buffer
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	jw, err := NewJSONLWriter(&j, h)
	if err != nil {
		t.Fatal(err)
	}
	tr := &Trace{Header: h}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := fit
			a.Experts = append([]int32(nil), fit.Experts...)
			a.Weights = append([]float32(nil), fit.Weights...)
			test.spoil(&a)
			for _, add := range []func(*Activation) error{w.Append, jw.Append, tr.Append} {
				if err := add(&a); !errors.Is(err, ErrActivation) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want ErrActivation with %q", err, test.want)
				}
			}
			if err := history.Add(&a); err != nil && !errors.Is(err, ErrActivation) {
				t.Errorf("History.Add: got %v, want ErrActivation or nil", err)
			}
		})
	}
	// None of the refusals stuck.
	for _, s := range []Sink{w, jw} {
		if err := s.Append(&fit); err != nil {
			t.Errorf("Append after refusals: %v", err)
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := s.Append(&fit); !errors.Is(err, ErrClosed) {
			t.Errorf("Append after Close: got %v, want ErrClosed", err)
		}
	}
}

// failing refuses writes after some bytes.
type failing struct{ room int }

var errFull = errors.New("no room")

func (f *failing) Write(p []byte) (int, error) {
	if f.room -= len(p); f.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriteErrorsStick(t *testing.T) {
	tr := skewed(t, layout.Shape{Layers: 8, Experts: 64, TopK: 8}, 2000, true)
	sinks := map[string]func() (Sink, error){
		"binary": func() (Sink, error) { return NewWriter(&failing{room: 100_000}, tr.Header) },
		"jsonl":  func() (Sink, error) { return NewJSONLWriter(&failing{room: 100_000}, tr.Header) },
	}
	for name, open := range sinks {
		t.Run(name, func(t *testing.T) {
			s, err := open()
			if err != nil {
				t.Fatal(err)
			}
			var a Activation
			failedAt := -1
			for i := range tr.Len() {
				tr.At(i, &a)
				err := s.Append(&a)
				if err != nil && failedAt < 0 {
					failedAt = i
				}
				if failedAt >= 0 && !errors.Is(err, errFull) {
					t.Fatalf("Append %d after a failure: got %v, want %v", i, err, errFull)
				}
			}
			if failedAt < 0 {
				t.Fatal("no Append failed, want one to")
			}
			for _, err := range []error{s.Flush(), s.Close(), s.Close()} {
				if !errors.Is(err, errFull) {
					t.Errorf("Flush or Close: got %v, want %v", err, errFull)
				}
			}
		})
	}
}

func TestHeaderValidate(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 4, TopK: 2}
	tests := []struct {
		name string
		h    Header
		want string
	}{
		{"no layers", Header{}, "shape has 0 layers"},
		{"too many ids", Header{Shape: layout.Shape{Layers: 4096, Experts: 4096, TopK: 65}}, "266240 expert ids"},
		{"block number", Header{Shape: layout.Shape{Layers: 1, Experts: 1, TopK: 1, LayerIDs: []int{1 << 40}}}, "layer 0 is block"},
		{"phase", Header{Shape: shape, Phase: 7}, "phase 7"},
		{"long note", Header{Shape: shape, Note: strings.Repeat("x", MaxText+1)}, "note has 65537 bytes"},
		{"not UTF-8", Header{Shape: shape, Model: "a\xff"}, "model is not valid UTF-8"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, newTrace := NewTrace(test.h)
			_, newWriter := NewWriter(io.Discard, test.h)
			_, newJSONL := NewJSONLWriter(io.Discard, test.h)
			for _, err := range []error{newTrace, newWriter, newJSONL, test.h.Validate()} {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want an error with %q", err, test.want)
				}
			}
		})
	}
}
