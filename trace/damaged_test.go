package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"outrider/layout"
)

// Where the parts of the golden trace lie.
const (
	goldenHeader = fileHeadBytes
	goldenTokens = 0x47
	goldenEnd    = 0x9c
)

// reseal makes the checksum of the frame at off right again.
func reseal(b []byte, off int) {
	end := off + frameHeadBytes + int(binary.LittleEndian.Uint32(b[off+4:]))
	binary.LittleEndian.PutUint32(b[end:], frameSum(b[off:off+frameHeadBytes], b[off+frameHeadBytes:end]))
}

// wantError checks a decoder's answer: a sentinel, or a *CorruptError where
// sentinel is nil, and a text.
func wantError(t *testing.T, err, sentinel error, text string) {
	t.Helper()
	var corrupt *CorruptError
	switch {
	case sentinel != nil && !errors.Is(err, sentinel):
		t.Errorf("got %v, want %v", err, sentinel)
	case sentinel == nil && !errors.As(err, &corrupt):
		t.Errorf("got %v, want a *CorruptError", err)
	case !strings.Contains(err.Error(), text):
		t.Errorf("got %q, want %q in it", err, text)
	}
}

func TestReaderDamaged(t *testing.T) {
	set := func(off int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[off:], v); return b }
	}
	// sealed changes bytes of a frame and makes its checksum right.
	sealed := func(frame, off int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[frame+off:], v); reseal(b, frame); return b }
	}
	payload := frameHeadBytes
	token := payload + 4
	tests := []struct {
		name     string
		damage   func([]byte) []byte
		sentinel error
		want     string
	}{
		{"empty", func([]byte) []byte { return nil }, ErrNotTrace, "the file has 0 bytes"},
		{"magic", set(0, 'x'), ErrNotTrace, `a binary trace with "\x93ORTRACE"`},
		{"version zero", set(8, 0), ErrVersion, "version 0, this program reads 1"},
		{"version next", set(8, 2), ErrVersion, "version 2, this program reads 1"},
		{"header kind zero", set(goldenHeader, 0), nil, "byte 12: frame of kind 0"},
		{"header kind other", sealed(goldenHeader, 0, frameTokens), nil, "first frame is of kind 2"},
		{"header length zero", set(goldenHeader+4, 0), nil, "has 0 bytes"},
		{"header length huge", set(goldenHeader+7, 0xff), nil, "want 1 to 4194304"},
		{"header length short", set(goldenHeader+4, 0x2e), nil, "checksum is"},
		{"header byte", set(goldenHeader+payload, 9), nil, "checksum is"},
		{"header sum", set(goldenTokens-1, 9), nil, "checksum is"},
		{"layers zero", sealed(goldenHeader, payload, 0), nil, "shape has 0 layers"},
		{"layers huge", sealed(goldenHeader, payload+3, 0xff), nil, "shape has 4278190082 layers"},
		{"experts", sealed(goldenHeader, payload+4, 1, 0), nil, "shape has top-k 2, want 1 to 1"},
		{"header flags", sealed(goldenHeader, payload+12, 0xff), nil, "unknown flags 0xff"},
		{"header flag lost", sealed(goldenHeader, payload+12, 3), nil, "does not fill its frame"},
		{"header phase", sealed(goldenHeader, payload+13, 3), nil, "phase 3"},
		{"layer id order", sealed(goldenHeader, payload+15, 0), nil, "not ascending"},
		{"text length", sealed(goldenHeader, payload+16, 0xff, 0xff), nil, "does not fill its frame"},
		{"text bytes", sealed(goldenHeader, payload+17, 0xff), nil, "not valid UTF-8"},
		{"tokens byte", set(goldenTokens+token, 9), nil, "byte 71: checksum is"},
		{"kind unknown", sealed(goldenTokens, 0, 9), nil, "frame of kind 9"},
		{"second header", sealed(goldenTokens, 0, frameHeader), nil, "frame of kind 1"},
		{"count zero", sealed(goldenTokens, payload, 0), nil, "has 0 tokens"},
		{"count huge", sealed(goldenTokens, payload+3, 0xff), nil, "tokens"},
		{"count one more", sealed(goldenTokens, payload, 4), nil, "token 3: it does not fit into its frame"},
		{"count one less", sealed(goldenTokens, payload, 2), nil, "bytes are left over"},
		{"token flags", sealed(goldenTokens, token, 0x80), nil, "token 0: unknown flags 0x80"},
		{"token phase", sealed(goldenTokens, token, 3), nil, "token 0: phase 3"},
		{"sequence", sealed(goldenTokens, token+1, 1), nil, "sequence -1 is negative"},
		{"expert id", sealed(goldenTokens, token+4, 0xff, 0xff), nil, "token 0: layer 0: expert id 65535 is outside 0 to 299"},
		{"expert twice", sealed(goldenTokens, token+6, 3, 0), nil, "named twice"},
		{"weight", sealed(goldenTokens, token+12, 0, 0, 0x80, 0x7f), nil, "not a finite number"},
		{"row length", sealed(goldenTokens, token+32, 3), nil, "layer 0 has 3 ids, want at most 2"},
		{"end count", sealed(goldenEnd, payload, 4), nil, "counts 4 tokens, but 3 were there"},
		{"end length", func(b []byte) []byte {
			return append(b[:goldenEnd], sealFrame(make([]byte, frameHeadBytes+7), frameEnd)...)
		}, nil, "end mark has 7 bytes"},
		{"bytes after the end", func(b []byte) []byte { return append(b, 0) }, nil, "bytes follow the end mark"},
		{"zeros for a tail", func(b []byte) []byte { return append(b[:goldenEnd], make([]byte, 4096)...) }, nil, "frame of kind 0"},
	}
	good := binaryOf(t, small(t))
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := readBinary(test.damage(bytes.Clone(good)))
			wantError(t, err, test.sentinel, test.want)
		})
	}
}

func readBinary(b []byte) (*Trace, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return ReadAll(r, 0)
}

// A flipped bit anywhere after the version is always found.
func TestReaderEveryBit(t *testing.T) {
	good := binaryOf(t, small(t))
	for i := range good {
		for bit := range 8 {
			b := bytes.Clone(good)
			b[i] ^= 1 << bit
			if _, err := readBinary(b); err == nil {
				t.Errorf("bit %d of byte %d flipped: got no error", bit, i)
			}
		}
	}
}

// Cut anywhere, a trace gives back the tokens of all whole frames.
func TestReaderTorn(t *testing.T) {
	var b bytes.Buffer
	tr := small(t)
	w, err := NewWriter(&b, tr.Header)
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{}
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		if err := errors.Join(w.Append(&a), w.Flush()); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, b.Len())
	}
	headerEnd := goldenTokens
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for cut := range b.Len() {
		r, err := NewReader(bytes.NewReader(b.Bytes()[:cut]))
		switch {
		case cut < len(traceMagic):
			wantError(t, err, ErrNotTrace, "")
			continue
		case cut < headerEnd:
			wantError(t, err, ErrTorn, "the 0 tokens before the tear were kept")
			continue
		case err != nil:
			t.Fatalf("cut at %d: NewReader: %v", cut, err)
		}
		want := 0
		for want < len(ends) && ends[want] <= cut {
			want++
		}
		n, err := drain(t, r)
		var torn *TornError
		if !errors.As(err, &torn) || n != want || torn.Tokens != int64(want) {
			t.Errorf("cut at %d: got %d tokens and %v, want %d and a *TornError", cut, n, err, want)
		}
	}
}

func TestReaderPassesOnIOErrors(t *testing.T) {
	good := binaryOf(t, small(t))
	for _, n := range []int{0, 5, 20, goldenTokens + 3, goldenEnd, len(good)} {
		src := io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(errFull))
		r, err := NewReader(src)
		if err == nil {
			_, err = drain(t, r)
		}
		if !errors.Is(err, errFull) {
			t.Errorf("source fails at byte %d: got %v, want %v", n, err, errFull)
		}
	}
}

func TestJSONLDamaged(t *testing.T) {
	const head = `{"model":"m","layers":2,"experts":4,"top_k":2,"extra":[1]}` + "\n"
	const good = `{"seq":0,"pos":0,"experts":[[0,1],[2]],"weights":[[0.5,0.5],[1]],"domain":"x"}` + "\n"
	tests := []struct {
		name     string
		text     string
		sentinel error
		want     string
	}{
		{"empty", "", ErrNotTrace, "the file is empty"},
		{"blank", "\n\n", ErrNotTrace, "the file is empty"},
		{"no JSON", "hello\n", ErrNotTrace, "line 1 is no header object"},
		{"array", "[1]\n", ErrNotTrace, "line 1 is no header object"},
		{"other object", `{"a":1}` + "\n", ErrNotTrace, "describes no trace"},
		{"histogram", `{"kind":"histogram","experts":64,"top_k":8}` + "\n", ErrNotTrace, `kind "histogram"`},
		{"shape", `{"layers":2,"experts":4,"top_k":5}` + "\n", nil, "line 1: layout: shape has top-k 5"},
		{"huge shape", `{"layers":4096,"experts":4096,"top_k":4096}` + "\n", nil, "expert ids over all layers"},
		{"torn", head + good + `{"seq":0,"pos":1,"exp`, ErrTorn, "1 tokens before the tear"},
		{"half a line inside", head + good + "{\"seq\":0,\"pos\":1,\n" + good, nil, "line 3: "},
		{"not an object", head + good + "[]\n", nil, "line 3: "},
		{"no seq", head + `{"pos":0,"experts":[[0],[1]]}`, nil, `line 2: the line needs a "seq"`},
		{"negative pos", head + `{"seq":0,"pos":-4,"experts":[[0],[1]]}`, nil, `"pos" of 0 or more`},
		{"huge seq", head + `{"seq":99999999999999999999,"pos":0,"experts":[[0],[1]]}`, nil, "line 2: "},
		{"phase", head + `{"seq":0,"pos":0,"phase":"dream","experts":[[0],[1]]}`, nil, `phase is "dream"`},
		{"phase number", head + `{"seq":0,"pos":0,"phase":1,"experts":[[0],[1]]}`, nil, "phase is 1"},
		{"no experts", head + `{"seq":0,"pos":0}`, nil, "experts: want an array with 2 rows"},
		{"experts null", head + good + `{"seq":0,"pos":1,"experts":null}`, nil, "line 3: experts: want an array"},
		{"row null", head + good + `{"seq":0,"pos":1,"experts":[[0,1],null]}`, nil, "layer 1: want an array"},
		{"id null", head + good + `{"seq":0,"pos":1,"experts":[[0,null],[1]]}`, nil, "layer 0: entry 1 is no expert id"},
		{"id text", head + `{"seq":0,"pos":0,"experts":[["0"],[1]]}`, nil, "layer 0: entry 0 is no expert id"},
		{"id nested", head + `{"seq":0,"pos":0,"experts":[[[0]],[1]]}`, nil, "layer 0: entry 0 is no expert id"},
		{"id fraction", head + `{"seq":0,"pos":0,"experts":[[0.0],[1]]}`, nil, "entry 0 is no expert id"},
		{"id -1", head + `{"seq":0,"pos":0,"experts":[[0,-1],[1]]}`, nil, "entry 1 is no expert id"},
		{"id out of range", head + `{"seq":0,"pos":0,"experts":[[0],[4]]}`, nil, "layer 1: expert id 4 is outside 0 to 3"},
		{"id twice", head + `{"seq":0,"pos":0,"experts":[[0],[1,1]]}`, nil, "layer 1: expert id 1 is named twice"},
		{"too many ids", head + `{"seq":0,"pos":0,"experts":[[0,1,2],[1]]}`, nil, "layer 0: more than top-k (2) ids"},
		{"too few rows", head + `{"seq":0,"pos":0,"experts":[[0,1]]}`, nil, "1 rows, want 2"},
		{"too many rows", head + `{"seq":0,"pos":0,"experts":[[0],[1],[2]]}`, nil, "more than 2 rows"},
		{"weights once", head + good + `{"seq":0,"pos":1,"experts":[[0],[1]]}`, nil, "line 3: some lines have weights"},
		{"weights later", head + `{"seq":0,"pos":1,"experts":[[0],[1]]}` + "\n" + good, nil, "line 3: some lines have weights"},
		{"too few weights", head + `{"seq":0,"pos":0,"experts":[[0,1],[1]],"weights":[[1],[1]]}`, nil, "layer 0: 1 weights for 2 ids"},
		{"too many weights", head + `{"seq":0,"pos":0,"experts":[[0],[1]],"weights":[[1],[1,2]]}`, nil, "layer 1: more weights than ids (1)"},
		{"weight null", head + `{"seq":0,"pos":0,"experts":[[0],[1]],"weights":[[1],[null]]}`, nil, "entry 0 is no finite number"},
		{"weight huge", head + `{"seq":0,"pos":0,"experts":[[0],[1]],"weights":[[1],[1e39]]}`, nil, "entry 0 is no finite number"},
		{"token later", head + good + `{"seq":0,"pos":1,"experts":[[0],[1]],"weights":[[1],[1]],"token":3}`, nil, "the first token has none"},
		{"token huge", head + `{"seq":0,"pos":0,"experts":[[0],[1]],"token":3000000000}`, nil, "token id 3000000000 is outside"},
		{"long line", head + `{"seq":0,"pos":0,"note":"` + strings.Repeat("x", MaxLine), nil, "line 2: the line is longer than"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := NewJSONLReader(strings.NewReader(test.text))
			if err == nil {
				_, err = drain(t, s)
			}
			wantError(t, err, test.sentinel, test.want)
		})
	}
}

func TestJSONLTolerates(t *testing.T) {
	text := "\xef\xbb\xbf" + ` { "layers": 1, "experts": 4, "top_k": 3, "phase": "prefill+decode", "tokens": 9 } ` + "\r\n\n" +
		`{"experts": [ [ 2 , 0 ] ], "seq":3, "pos":7, "token":null, "weights":null, "phase":"decode"}` + "\r\n" +
		`{"seq":3,"pos":8,"experts":[[]],"step":1}` // no newline, but whole
	s, err := NewStream(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadAll(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	want := &Trace{
		Header: Header{Shape: layout.Shape{Layers: 1, Experts: 4, TopK: 3}},
		Seqs:   []int64{3, 3}, Pos: []int64{7, 8}, Phases: []Phase{Decode, PhaseUnknown}, Tokens: []int32{-1, -1},
		Experts: []int32{2, 0, -1, -1, -1, -1},
	}
	if d := diff(want, got); d != "" {
		t.Errorf("trace differs (-want +got):\n%s", d)
	}
}

// Numbers of any size survive both forms.
func TestExtremes(t *testing.T) {
	tr, err := NewTrace(Header{Shape: layout.Shape{Layers: 1, Experts: layout.MaxExperts, TopK: 2}, Weights: true, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range []Activation{
		{Seq: math.MaxInt64, Pos: math.MaxInt64, Token: math.MaxInt32, Experts: []int32{layout.MaxExperts - 1, 0}, Weights: []float32{math.MaxFloat32, math.SmallestNonzeroFloat32}},
		{Seq: 0, Pos: 0, Token: 0, Experts: []int32{0, 1}, Weights: []float32{-math.MaxFloat32, 1.0 / 3}},
	} {
		if err := tr.Append(&a); err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
	}
	for name, b := range map[string][]byte{"binary": binaryOf(t, tr), "jsonl": jsonlOf(t, tr)} {
		s, err := NewStream(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ReadAll(s, 0)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(tr, got); d != "" {
			t.Errorf("%s: trace differs (-want +got):\n%s", name, d)
		}
	}
}

func ExampleTornError() {
	err := fmt.Errorf("replay: %w", &TornError{Path: "run.trace", Tokens: 12})
	fmt.Println(err)
	fmt.Println(errors.Is(err, ErrTorn))
	// Output:
	// replay: trace: run.trace: the file ends before its end mark; the 12 tokens before the tear were kept
	// true
}
