package router

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// savers makes each predictor that New makes, and the wrappers, all fresh.
func savers(t testing.TB, shape layout.Shape) []Saver {
	t.Helper()
	var all []Saver
	for _, name := range Names() {
		p, err := New(name, shape)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.(Saver))
	}
	return append(all, NewHinted(all[0], shape))
}

func save(t testing.TB, p Predictor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Save(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func loaded(t testing.TB, file []byte) Predictor {
	t.Helper()
	p, err := Load(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run follows passes, prefill and decode, with token ids in some of them, and
// returns the bits of all scores on the way.
func run(h History, shape layout.Shape, passes []pass) []uint32 {
	var bits []uint32
	dst := make([]float32, shape.Experts)
	for i := 0; i < len(passes); i++ {

		width, phase := 1, trace.Decode
		if i%10 == 3 {
			width, phase = min(5, len(passes)-i), trace.Prefill
		}
		var tokens []int32
		for _, x := range passes[i : i+width] {
			tokens = append(tokens, x.tokens...)
		}
		if i%4 == 0 {
			tokens = nil
		}
		h.Begin(phase, tokens)
		for l := range shape.Layers {
			if hinter, ok := h.(Hinter); ok && i%3 > 0 {
				hinter.Hint(l-1, l, passes[i*7%len(passes)].choices[l].Experts, nil)
			}
			var choices []Choice
			for _, x := range passes[i : i+width] {
				choices = append(choices, x.layer(l)...)
			}
			h.Score(l, dst)
			for _, p := range dst {
				bits = append(bits, math.Float32bits(p))
			}
			h.Observe(l, choices)
		}
		i += width - 1
	}
	return bits
}

// TestStateRoundTrip: what is loaded forecasts, and goes on learning, bit for bit
// as what was saved; saved again it is the same file.
func TestStateRoundTrip(t *testing.T) {
	passes := synthetic(small, 400, 4)
	for i, p := range savers(t, small) {
		t.Run(stateName(p), func(t *testing.T) {
			run(p.NewHistory(), small, passes[:300])
			file := save(t, p)
			q := loaded(t, file)
			if again := save(t, q); !bytes.Equal(again, file) {
				t.Error("saved again: got another file, want the same")
			}
			want, got := run(p.NewHistory(), small, passes[300:]), run(q.NewHistory(), small, passes[300:])
			if !slices.Equal(got, want) {
				t.Error("scores after loading differ from those of the predictor that was saved")
			}
			fresh := run(savers(t, small)[i].NewHistory(), small, passes[300:])
			if p.Name() != "recency" && slices.Equal(got, fresh) {
				t.Error("scores after loading are those of a predictor that has learned nothing")
			}
			if !bytes.Equal(save(t, p), save(t, q)) {
				t.Error("what was learned after loading differs from what the other learned")
			}
		})
	}
}

// TestStateOfNothing: layers that were never seen cost a byte or two.
func TestStateOfNothing(t *testing.T) {
	shape := layout.Shape{Layers: 48, Experts: 128, TopK: 8}
	for _, p := range savers(t, shape) {
		file := save(t, p)
		if len(file) > 100+40*shape.Layers {
			t.Errorf("%s: got %d bytes for nothing learned", stateName(p), len(file))
		}
		if !bytes.Equal(save(t, loaded(t, file)), file) {
			t.Errorf("%s: saved again: got another file, want the same", stateName(p))
		}
	}
}

// TestStateWhileOthersLearn is for the race detector; every file must load.
func TestStateWhileOthersLearn(t *testing.T) {
	passes := synthetic(small, 200, 5)
	for _, p := range savers(t, small) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { run(p.NewHistory(), small, passes) })
		}
		for range 10 {
			loaded(t, save(t, p))
		}
		wg.Wait()
	}
}

// TestStateOptions: a loaded predictor has the options of the saved one, and one
// of other options is not filled in.
func TestStateOptions(t *testing.T) {
	own, err := NewOnline(small, OnlineOptions{TokenSlots: 64, TokenWidth: 5, MaxTies: -1})
	if err != nil {
		t.Fatal(err)
	}
	run(own.NewHistory(), small, synthetic(small, 50, 1))
	file := save(t, own)
	if got := loaded(t, file).(*Online).opts; got != own.opts {
		t.Errorf("got options %+v, want %+v", got, own.opts)
	}
	for _, c := range []struct {
		o    OnlineOptions
		want error
	}{{own.opts, nil}, {OnlineOptions{}, ErrOption}, {OnlineOptions{TokenSlots: 64, TokenWidth: 5}, ErrOption}} {
		p, err := NewOnline(small, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if err := LoadInto(bytes.NewReader(file), p); !errors.Is(err, c.want) {
			t.Errorf("%+v: got %v, want %v", c.o, err, c.want)
		}
	}
	m := newMatrix(t, small, MatrixOptions{Capacity: 7, Window: 3})
	q := loaded(t, save(t, m)).(*Matrix)
	if q.past.capacity != 7 || q.window != 3 {
		t.Errorf("matrix: got capacity %d and window %d, want 7 and 3", q.past.capacity, q.window)
	}
}

func TestStateShape(t *testing.T) {
	file := save(t, savers(t, small)[0])
	other := layout.Shape{Layers: 4, Experts: 16, TopK: 2}
	p, err := NewOnline(other, OnlineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, forErr := LoadFor(bytes.NewReader(file), other)
	for _, err := range []error{forErr, LoadInto(bytes.NewReader(file), p)} {
		if !errors.Is(err, ErrShape) || !strings.Contains(err.Error(), "top 3") || !strings.Contains(err.Error(), "top 2") {
			t.Errorf("got %v, want ErrShape that names both shapes", err)
		}
	}
	named := small
	named.LayerIDs = []int{1, 2, 3, 5}
	got, err := LoadFor(bytes.NewReader(file), named)
	if err != nil || !got.(Saver).Shape().Equal(named) {
		t.Errorf("got %v, %v, want a predictor of the shape asked for", got, err)
	}
	if _, err := LoadFor(bytes.NewReader(file), layout.Shape{}); err == nil {
		t.Error("a shape that is not valid: got no error, want one")
	}
}

// notes is a user's predictor: the last layer that any sequence observed.
type notes struct {
	shape layout.Shape
	mu    sync.Mutex
	last  int
	inner Predictor
}

func (n *notes) Name() string        { return "notes" }
func (n *notes) Shape() layout.Shape { return n.shape }
func (n *notes) NewHistory() History { return n.inner.NewHistory() }
func (n *notes) VisitState(s *State) {
	s.Section("notes", &n.mu, func() { s.Int(&n.last, 0, n.shape.Layers) })
	s.Inner(n.inner)
}

func TestStateOfAUsersPredictor(t *testing.T) {
	inner := savers(t, small)
	run(inner[0].NewHistory(), small, synthetic(small, 30, 1))
	file := save(t, &notes{shape: small, last: 3, inner: inner[0]})
	if _, err := Load(bytes.NewReader(file)); !errors.Is(err, ErrUnknownPredictor) || !strings.Contains(err.Error(), "LoadInto") {
		t.Errorf("Load: got %v, want ErrUnknownPredictor that names LoadInto", err)
	}
	fresh := savers(t, small)
	n := &notes{shape: small, inner: fresh[0]}
	if err := LoadInto(bytes.NewReader(file), n); err != nil || n.last != 3 {
		t.Errorf("LoadInto: got %v and %d, want 3", err, n.last)
	}
	if !bytes.Equal(save(t, fresh[0]), save(t, inner[0])) {
		t.Error("inner predictor: got another state, want that which was saved")
	}
	n.inner = fresh[1]
	if err := LoadInto(bytes.NewReader(file), n); !errors.Is(err, ErrOption) {
		t.Errorf("another inner predictor: got %v, want ErrOption", err)
	}
	if err := LoadInto(bytes.NewReader(file), fresh[0]); !errors.Is(err, ErrOption) {
		t.Errorf("another predictor: got %v, want ErrOption", err)
	}
}

func TestNotSaved(t *testing.T) {
	tr := recorded(small, synthetic(small, 5, 1), false)
	o, err := NewOracle(small, tr)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []Predictor{o, newRevealed(t, "online", tr), &notes{shape: small, inner: o}} {
		if err := Save(io.Discard, p); !errors.Is(err, ErrNotSaved) {
			t.Errorf("Save %s: got %v, want ErrNotSaved", p.Name(), err)
		}
	}
	if err := LoadInto(bytes.NewReader(nil), o); !errors.Is(err, ErrNotSaved) {
		t.Errorf("LoadInto: got %v, want ErrNotSaved", err)
	}
}

// TestBrokenForecastIsNotSaved: a state that spreads NaN is worth nothing, and
// would replace one that is.
func TestBrokenForecastIsNotSaved(t *testing.T) {
	p, err := NewFrequency(small)
	if err != nil {
		t.Fatal(err)
	}
	run(p.NewHistory(), small, synthetic(small, 5, 1))
	p.use[2][7] = float32(math.NaN())
	if err := Save(io.Discard, p); err == nil || !strings.Contains(err.Error(), "number 7 is NaN") {
		t.Errorf("got %v, want an error that names the number", err)
	}
}

// failing fails from the n-th call on.
type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

func (f *failing) Read(b []byte) (int, error) { return 0, io.ErrClosedPipe }

func TestStateReadAndWriteErrors(t *testing.T) {
	p := savers(t, small)[0]
	run(p.NewHistory(), small, synthetic(small, 5, 1))
	for n := range 5 {
		if err := Save(&failing{n}, p); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("write %d fails: got %v, want that error", n, err)
		}
	}
	file := save(t, p)
	for _, n := range []int{0, 5, 40, len(file) - 1} {
		r := io.MultiReader(bytes.NewReader(file[:n]), &failing{})
		if _, err := Load(r); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("read fails after %d bytes: got %v, want that error", n, err)
		}
	}
}
