package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"outrider/layout"
)

func historyOf(tb interface {
	Helper()
	Fatalf(string, ...any)
}, tr *Trace) *History {
	tb.Helper()
	h, err := NewHistory(tr.Header.Shape)
	if err != nil {
		tb.Fatalf("NewHistory: %v", err)
	}
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		if err := h.Add(&a); err != nil {
			tb.Fatalf("Add: %v", err)
		}
	}
	return h
}

// counts is what a History answers, counted straight from the trace.
type counts struct {
	tr   *Trace
	last map[int64]int // token before each token, by index
}

func (c counts) used(i, layer int, e int32) bool {
	if layer < 0 || layer >= c.tr.Header.Shape.Layers {
		return false
	}
	ids, _ := c.tr.Row(i, layer)
	return slices.Contains(ids, e)
}

func (c counts) both(la int, a int32, lb int, b int32) (n uint64) {
	for i := range c.tr.Len() {
		if c.used(i, la, a) && c.used(i, lb, b) {
			n++
		}
	}
	return n
}

func (c counts) reuse(layer int, e int32) (n uint64) {
	clear(c.last)
	for i, seq := range c.tr.Seqs {
		if before, ok := c.last[seq]; ok && c.used(before, layer, e) && c.used(i, layer, e) {
			n++
		}
		c.last[seq] = i
	}
	return n
}

func TestHistoryAgainstCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		for i := range tr.Seqs { // let sequences have several tokens
			tr.Seqs[i] %= 3
		}
		built := historyOf(t, tr)
		var b bytes.Buffer
		n, err := built.WriteTo(&b)
		if err != nil || n != int64(b.Len()) {
			t.Fatalf("WriteTo: got %d, %v, want %d bytes", n, err, b.Len())
		}
		opened, err := OpenHistory(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil {
			t.Fatalf("OpenHistory: %v", err)
		}
		want := counts{tr, map[int64]int{}}
		shape := tr.Header.Shape
		for _, h := range []*History{built, opened} {
			if !h.Shape().Equal(shape) || h.Tokens() != uint64(tr.Len()) {
				t.Errorf("got shape %v and %d tokens, want %v and %d", h.Shape(), h.Tokens(), shape, tr.Len())
			}
			layer := rapid.IntRange(-1, shape.Layers).Draw(t, "layer")
			x := rapid.Int32Range(-1, int32(min(shape.Experts, 12))).Draw(t, "x")
			y := rapid.Int32Range(-1, int32(min(shape.Experts, 12))).Draw(t, "y")
			if got, want := h.Uses(layer, x), want.both(layer, x, layer, x); x >= 0 && got != want {
				t.Errorf("Uses(%d, %d): got %d, want %d", layer, x, got, want)
			}
			if x < 0 || y < 0 {
				continue // -1 is fill in the trace, and no expert
			}
			if got, want := h.Coactivation(layer, x, y), want.both(layer, x, layer, y); got != want {
				t.Errorf("Coactivation(%d, %d, %d): got %d, want %d", layer, x, y, got, want)
			}
			if got, want := h.Transition(layer, x, y), want.both(layer, x, layer+1, y); got != want {
				t.Errorf("Transition(%d, %d, %d): got %d, want %d", layer, x, y, got, want)
			}
			if got, want := h.Reuse(layer, x), want.reuse(layer, x); got != want {
				t.Errorf("Reuse(%d, %d): got %d, want %d", layer, x, got, want)
			}
		}
	})
}

func TestHistoryPopularity(t *testing.T) {
	h := historyOf(t, small(t))
	got := h.Popularity(0, []uint64{7})
	want := make([]uint64, 301)
	want[0], want[1+3], want[1+299] = 7, 3, 2
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := h.Uses(0, -1) + h.Uses(0, 300) + h.Uses(2, 0) + h.Reuse(-1, 0); got != 0 {
		t.Errorf("uses of experts the shape has not: got %d, want 0", got)
	}
}

// More may be added to an opened history; the bytes it reads from stay as they are.
func TestHistoryGrowsOnAView(t *testing.T) {
	tr := skewed(t, layout.Shape{Layers: 2, Experts: 8, TopK: 3}, 20_000, false)
	var b bytes.Buffer
	if _, err := historyOf(t, tr).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(b.Bytes())
	h, err := ParseHistory(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		if err := h.Add(&a); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(b.Bytes(), before) {
		t.Error("Add wrote into the bytes the history was parsed from")
	}
	once := historyOf(t, tr)
	for e := range int32(8) {
		if got, want := h.Uses(1, e), 2*once.Uses(1, e); got != want {
			t.Errorf("Uses(1, %d): got %d, want %d", e, got, want)
		}
		if got, want := h.Coactivation(1, 0, e), 2*once.Coactivation(1, 0, e); got != want {
			t.Errorf("Coactivation(1, 0, %d): got %d, want %d", e, got, want)
		}
	}
}

func TestHistoryGolden(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join("testdata", "v1.history"))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := historyOf(t, small(t)).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), golden) {
		t.Errorf("encoding changed:\ngot  %x\nwant %x", b.Bytes(), golden)
	}
	h, err := ParseHistory(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := []uint64{h.Tokens(), h.Uses(0, 3), h.Reuse(0, 3), h.Coactivation(0, 3, 299), h.Transition(0, 299, 0)}; !slices.Equal(got, []uint64{3, 3, 1, 2, 2}) {
		t.Errorf("golden history: got %v, want [3 3 1 2 2]", got)
	}
}

func TestHistoryDamaged(t *testing.T) {
	const header, expert = fileHeadBytes, 0x2f
	payload := frameHeadBytes
	bitmap := payload + 12
	sealed := func(frame, off int, v ...byte) func([]byte) []byte {
		return func(b []byte) []byte { copy(b[frame+off:], v); reseal(b, frame); return b }
	}
	tests := []struct {
		name     string
		damage   func([]byte) []byte
		sentinel error
		want     string
	}{
		{"empty", func([]byte) []byte { return nil }, ErrNotTrace, "0 bytes"},
		{"a trace", func([]byte) []byte { return binaryOf(t, small(t)) }, ErrNotTrace, `a history with "\x93ORHISTO"`},
		{"version", func(b []byte) []byte { b[8] = 9; return b }, ErrVersion, "version 9"},
		{"header kind", sealed(header, 0, frameExpert), nil, "first frame is of kind 4"},
		{"header byte", func(b []byte) []byte { b[header+payload]++; return b }, nil, "byte 12: checksum"},
		{"no layers", sealed(header, payload, 0), nil, "shape has 0 layers"},
		{"too many experts", func([]byte) []byte {
			h := History{shape: layout.Shape{Layers: 4096, Experts: 4096, TopK: 1}}
			return append(appendFileHead(nil, historyMagic), sealFrame(h.appendHeader(make([]byte, frameHeadBytes)), frameHeader)...)
		}, nil, "16777216 experts, want at most 1048576"},
		{"too many tokens", sealed(header, payload+19, 1), nil, "want at most 4294967295"},
		{"header flags", sealed(header, payload+20, 9), nil, "unknown flags 0x9"},
		{"layer ids", sealed(header, payload+20, 0), nil, "does not fill its frame"},
		{"kind zero", sealed(expert, 0, 0), nil, "frame of kind 0"},
		{"kind other", sealed(expert, 0, frameTokens), nil, "frame of kind 2"},
		{"length huge", func(b []byte) []byte { b[expert+7] = 0xff; return b }, nil, "want 1 to 1073741824"},
		{"length too long", func(b []byte) []byte { b[expert+6] = 0xff; return b }, ErrTorn, "the 0 tokens"},
		{"ordinal out of range", sealed(expert, payload, 0, 9), nil, "expert 2304 of 600"},
		{"ordinal again", sealed(expert+0x2e, payload, 3, 0), nil, "expert 3 of 600 stands after expert 3"},
		{"reuse", sealed(expert, payload+4, 3), nil, "layer 0 expert 3 has 3 users and 3 reuses"},
		{"user beyond the tokens", sealed(expert, bitmap+20, 9), nil, "do not fit 3 tokens"},
		{"bitmap cookie", sealed(expert, bitmap, 0), nil, "bitmap: "},
		{"bitmap containers", sealed(expert, bitmap+4, 9), nil, "bitmap: "},
		{"bitmap cardinality", sealed(expert, bitmap+10, 9), nil, "bitmap: "},
		{"bitmap shorter", sealed(expert, bitmap+10, 1), nil, "bitmap does not fill its frame"},
		{"bitmap order", sealed(expert, bitmap+16, 2, 0), nil, "bitmap: "},
		{"end count", sealed(len(historyBytes(t))-20, payload, 4), nil, "end mark does not repeat"},
		{"after the end", func(b []byte) []byte { return append(b, 1) }, nil, "1 bytes follow the end mark"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := ParseHistory(test.damage(historyBytes(t)))
			wantError(t, err, test.sentinel, test.want)
		})
	}
	good := historyBytes(t)
	for cut := range good {
		if _, err := ParseHistory(good[:cut]); !errors.Is(err, ErrTorn) && !(cut < 8 && errors.Is(err, ErrNotTrace)) {
			t.Errorf("cut at %d: got %v, want ErrTorn", cut, err)
		}
	}
}

func historyBytes(tb testing.TB) []byte {
	tb.Helper()
	var b bytes.Buffer
	if _, err := historyOf(tb, small(tb)).WriteTo(&b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func TestHistoryWriteAndReadErrors(t *testing.T) {
	h := historyOf(t, small(t))
	for _, room := range []int{0, 60, 280} {
		if _, err := h.WriteTo(&failing{room: room}); !errors.Is(err, errFull) {
			t.Errorf("WriteTo with room for %d bytes: got %v, want %v", room, err, errFull)
		}
	}
	if _, err := OpenHistory(failingAt{}, 100); !errors.Is(err, errFull) {
		t.Errorf("OpenHistory: got %v, want %v", err, errFull)
	}
	b := historyBytes(t)
	if _, err := OpenHistory(bytes.NewReader(b), 1<<60); err != nil {
		t.Errorf("OpenHistory of a file said to be larger than it is: %v", err)
	}
	h.tokens = 1<<32 - 1
	var a Activation
	small(t).At(0, &a)
	if err := h.Add(&a); !errors.Is(err, ErrHistoryFull) {
		t.Errorf("Add to a full history: got %v, want %v", err, ErrHistoryFull)
	}
}

type failingAt struct{}

func (failingAt) ReadAt([]byte, int64) (int, error) { return 0, errFull }

func TestRecentForgetsTheOldest(t *testing.T) {
	r := newRecent(1)
	r.limit = 2
	steps := []struct {
		seq    int64
		id     int32
		before int32 // -1: none known
	}{{1, 10, -1}, {2, 20, -1}, {1, 11, 10}, {3, 30, -1}, {1, 12, 11}, {2, 21, -1}, {3, 31, -1}}
	for i, step := range steps {
		before, known := r.swap(step.seq, []int32{step.id})
		got := int32(-1)
		if known {
			got = before[0]
		}
		if got != step.before {
			t.Errorf("step %d, sequence %d: got %d before it, want %d", i, step.seq, got, step.before)
		}
	}
}

// resealAll makes the checksums of all frames right, so that a fuzzer gets past them.
func resealAll(b []byte) []byte {
	b = bytes.Clone(b)
	for off := fileHeadBytes; off+frameHeadBytes+frameTailBytes <= len(b); {
		length := int(binary.LittleEndian.Uint32(b[off+4:]))
		if length > len(b)-off-frameHeadBytes-frameTailBytes {
			break
		}
		reseal(b, off)
		off += frameHeadBytes + length + frameTailBytes
	}
	return b
}

// Counts may be taken from several goroutines; the race detector watches.
func TestHistoryConcurrentReads(t *testing.T) {
	tr := skewed(t, layout.Shape{Layers: 3, Experts: 8, TopK: 3}, 500, false)
	var b bytes.Buffer
	if _, err := historyOf(t, tr).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	h, err := ParseHistory(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for e := range int32(8) {
				if got := h.Coactivation(1, 0, e); got != h.Uses(1, e) { // expert 0 is always used
					t.Errorf("Coactivation(1, 0, %d): got %d, want %d", e, got, h.Uses(1, e))
				}
				h.Transition(0, e, 0)
				h.Reuse(2, e)
			}
			var out bytes.Buffer
			if _, err := h.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), b.Bytes()) {
				t.Errorf("WriteTo: got other bytes than were parsed, or %v", err)
			}
		})
	}
	wg.Wait()
}
