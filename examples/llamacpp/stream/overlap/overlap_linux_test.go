package overlap

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"outrider/experts"
	"outrider/layout"
)

// Threads that come early wait, each for its expert, and find all of its bytes.
func TestReadersWaitForTheirExpert(t *testing.T) {
	m := newMemory(t)
	for layer := range shape.Layers {
		begin(t, m)
		m.Expect(layer, []int32{4, 1})
		one := reader(t, m.place(expert(layer, 1)), fillByte(expert(layer, 1)))
		four := reader(t, m.place(expert(layer, 4)), fillByte(expert(layer, 4)))
		again := reader(t, m.place(expert(layer, 4)), fillByte(expert(layer, 4)))
		for _, e := range []int{4, 1} {
			publish(t, m, take(t, m, expert(layer, e)))
		}
		if !<-one || !<-four || !<-again {
			t.Errorf("layer %d: a thread read something else than the experts", layer)
		}
		if err := m.End(); err != nil {
			t.Errorf("layer %d: %v", layer, err)
		}
	}
}

// Experts come and go through a cache. What is published lies at its address, and no
// more is memory than is charged.
func TestPublishedThroughACache(t *testing.T) {
	m := newMemory(t)
	const budget = 3*large + 2*small
	c, err := experts.New(experts.Options{Shape: shape, Bytes: []int64{small, large}, BudgetBytes: budget, Memory: closedByTest{m}})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 8))
	begin(t, m)
	for turn := range 200 {
		id := shape.ID(r.IntN(shape.Count()))
		lease, outcome := c.Pin(id)
		if !outcome.Resident() {
			f, err := c.Begin(id, experts.Demand, 0)
			if err != nil {
				t.Fatal(err)
			}
			fill(f.Bytes(), fillByte(id))
			leases := make([]experts.Lease, 1)
			if err := f.Commit(nil, leases); err != nil {
				t.Fatal(err)
			}
			lease = leases[0]
		}
		if r.IntN(4) > 0 { // some are evicted without
			publish(t, m, leased(m, lease))
			if !holds(t, m.place(id), fillByte(id)) {
				t.Fatalf("turn %d: %v is not at its address", turn, id)
			}
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if got, used := allCommitted(t, m), c.Stats().Used; got > used {
			t.Fatalf("turn %d: %d bytes are memory, %d charged", turn, got, used)
		}
	}
	if err := errors.Join(m.End(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if got := allCommitted(t, m); got != 0 {
		t.Errorf("%d bytes are memory after the cache was closed", got)
	}
}

// closedByTest is closed by the test, which looks at it after the cache did.
type closedByTest struct{ *Memory }

func (closedByTest) Close() error { return nil }

// leased is what a client of the cache knows of a slot.
func leased(m *Memory, l experts.Lease) []byte { return l.Bytes() }

// Where an expert does not come, the thread goes on with zeros, the pass is told why,
// and nothing of it is left for the next.
func TestFailureEndsTheWaiting(t *testing.T) {
	m := newMemory(t)
	unread := errors.New("cannot be read")
	for layer := range shape.Layers {
		id, other := expert(layer, 2), expert(layer, 3)
		begin(t, m)
		m.Expect(layer, []int32{2, 3})
		early := reader(t, m.place(id), 0)
		b := take(t, m, other)
		m.Fail(unread)
		publish(t, m, b) // too late: what was zero does not change under a reader
		if !<-early || !holds(t, m.place(other), 0) {
			t.Errorf("layer %d: a thread read something else than zeros", layer)
		}
		if !errors.Is(m.Err(), unread) || !errors.Is(m.End(), unread) || m.Err() != nil {
			t.Errorf("layer %d: the pass was not told, or the next one was", layer)
		}
		if got := committed(t, m.stacks[layer]); got != 0 {
			t.Errorf("layer %d: %d bytes of zeros are left", layer, got)
		}
		begin(t, m)
		m.Expect(layer, []int32{2, 3})
		publish(t, m, b)
		publish(t, m, take(t, m, id))
		if !holds(t, m.place(other), fillByte(other)) || !holds(t, m.place(id), fillByte(id)) {
			t.Errorf("layer %d: the next pass does not find the experts", layer)
		}
		if err := m.End(); err != nil {
			t.Error(err)
		}
	}
}

// A thread that reads what nobody brings does not wait: the pass fails, by name.
func TestUnbiddenReads(t *testing.T) {
	m := newMemory(t)
	huge := m.stacks[1]
	for _, tt := range []struct {
		name  string
		read  []byte
		names string
	}{
		{"another expert of the layer", m.place(expert(1, 3)), expert(1, 3).String()},
		{"of another layer", m.place(expert(0, 5))[:1], expert(0, 5).String()},
		{"behind an expert's end", huge[large:][:1], expert(1, 0).String()},
		{"all of a stack but what is brought", huge[m.layers[1].stride*3:], expert(1, 3).String()},
	} {
		begin(t, m)
		m.Expect(1, []int32{2})
		waiting := reader(t, m.place(expert(1, 2)), 0)
		if !holds(t, tt.read, 0) || !<-waiting {
			t.Errorf("%s: got something else than zeros", tt.name)
		}
		if err := m.End(); !errors.Is(err, ErrUnbidden) || !strings.Contains(err.Error(), tt.names) {
			t.Errorf("%s: got %v, want ErrUnbidden that names %s", tt.name, err, tt.names)
		}
	}
	if got := allCommitted(t, m); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}

// Pages that were never read are no part of an expert.
func TestUnbiddenGapOfAnExpert(t *testing.T) {
	m := newMemory(t)
	b, err := m.Take(expert(0, 1), small)
	if err != nil {
		t.Fatal(err)
	}
	fill(b[:pageBytes], 7)
	for range 2 {
		begin(t, m)
		publish(t, m, b)
		if at := m.place(expert(0, 1)); !holds(t, at[:pageBytes], 7) || !holds(t, at[pageBytes:], 0) {
			t.Error("got something else than the bytes, and zeros")
		}
		if err := m.End(); !errors.Is(err, ErrUnbidden) {
			t.Errorf("got %v, want ErrUnbidden, also the second time", err)
		}
	}
}

// The pass before is waited for as long as the context lets.
func TestPassesComeOneAfterTheOther(t *testing.T) {
	m := newMemory(t)
	begin(t, m)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := m.Begin(ctx); !errors.Is(err, gone) {
		t.Errorf("got %v while a pass is on, want the context's cause", err)
	}
	next := make(chan error)
	go func() { next <- m.Begin(t.Context()) }()
	if err := m.End(); err != nil {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if err := m.End(); err != nil {
		t.Fatal(err)
	}
}

// A kernel that refuses says so; descriptors that have run out stand for one that does.
func TestRefused(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	none := limit
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Skip(err)
	}
	_, err := New(shape, []int64{small, large})
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "userfaultfd") {
		t.Errorf("got %v, want ErrUnavailable that names userfaultfd", err)
	}
}

func TestMemoryRefuses(t *testing.T) {
	m := newMemory(t)
	if _, err := m.Take(expert(0, 9), small); !errors.Is(err, experts.ErrUnknownExpert) {
		t.Errorf("got %v, want ErrUnknownExpert", err)
	}
	if _, err := m.Take(expert(0, 1), large); err == nil {
		t.Error("lent a slot of another size")
	}
	if _, err := m.Move(take(t, m, expert(0, 1)), expert(1, 1), small); err == nil {
		t.Error("moved a slot to an expert of another size")
	}
	if got := allCommitted(t, m); got != 0 {
		t.Errorf("%d bytes are left of what was refused", got)
	}
	for _, tt := range []struct {
		shape layout.Shape
		bytes []int64
		want  string
	}{
		{layout.Shape{Layers: 1, Experts: 100, TopK: 1}, []int64{1 << 40}, "address space"},
		{layout.Shape{Layers: 2, Experts: 4, TopK: 1}, []int64{small}, "1 slot sizes for 2 layers"},
		{layout.Shape{Layers: 1, Experts: 4, TopK: 1}, []int64{1000}, "slots of 1000 bytes"},
		{layout.Shape{Layers: 1, Experts: 4, TopK: 5}, []int64{small}, "top"},
	} {
		if _, err := New(tt.shape, tt.bytes); err == nil || !strings.Contains(strings.ToLower(err.Error()), tt.want) {
			t.Errorf("%+v, %v: got %v, want %q", tt.shape, tt.bytes, err, tt.want)
		}
	}
}
