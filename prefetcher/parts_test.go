package prefetcher

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"outrider/internal/device"
)

// reader is a waiter that also takes parts, and holds them until told otherwise.
type reader struct {
	inbox
	mu    sync.Mutex
	parts []heldPart
}

type heldPart struct {
	tag, i int
	data   []byte
	hold   Hold
	at     time.Time
}

func (r *reader) PartArrived(tag, i int, data []byte, hold Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts = append(r.parts, heldPart{tag, i, data, hold, time.Now()})
}

func (r *reader) arrivedParts() []heldPart {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]heldPart(nil), r.parts...)
}

// whole reports whether the parts' bytes are still those of the expert.
func (r *reader) whole(t *testing.T) {
	t.Helper()
	for _, p := range r.arrivedParts() {
		want := r.rig.src.Want(eid(p.tag/8, p.tag%8))
		half := (len(want) + 1) / 2
		if p.i == 0 {
			want = want[:half]
		} else {
			want = want[half:]
		}
		if !bytes.Equal(p.data, want) {
			t.Errorf("expert %d, part %d: got wrong bytes", p.tag, p.i)
		}
	}
}

func (r *reader) release() {
	for _, p := range r.arrivedParts() {
		p.hold.Release()
	}
}

func TestPartsArriveBeforeTheirExpert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 4 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
		in, start := &reader{inbox: inbox{rig: r}}, time.Now()
		r.p.Demand(eid(0, 3), 3, in)
		time.Sleep(time.Second)
		parts, whole := in.arrivedParts(), in.letters()
		if len(parts) != 2 || len(whole) != 1 {
			t.Fatalf("got %d parts and %d experts, want 2 1", len(parts), len(whole))
		}
		if got := parts[0].at.Sub(start); parts[0].i != 0 || got != 2*ms {
			t.Errorf("got part %d after %v, want part 0 after 2 of 4 blocks, 2ms", parts[0].i, got)
		}
		if got := whole[0].at.Sub(start); got != 4*ms {
			t.Errorf("got the expert after %v, want 4ms", got)
		}
		in.whole(t)
		in.release()
		r.close()
	})
}

// Who joins later is told of the parts that are there with the next block.
func TestPartsForWhoJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 4 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
		plain, in := &inbox{rig: r}, &reader{inbox: inbox{rig: r}}
		r.p.Demand(eid(0, 3), 3, plain)
		time.Sleep(2*ms + ms/2)
		r.p.Demand(eid(0, 3), 3, in)
		time.Sleep(ms)
		if got := in.arrivedParts(); len(got) != 1 || got[0].i != 0 {
			t.Errorf("after the third block: got %+v, want part 0", got)
		}
		time.Sleep(time.Second)
		if got := in.arrivedParts(); len(got) != 2 {
			t.Errorf("got %d parts, want 2", len(got))
		}
		in.release()
		r.close()
	})
}

// A part that somebody holds stays as it is when the rest fails, and its memory is
// charged until it is let go.
func TestHeldPartsOutliveAFailedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pages
		model.Rule = func(op device.Op) device.Effect {
			if op.Offset/4096%4 == 3 { // the last page of each expert
				return device.Effect{Err: errDrive}
			}
			return device.Effect{}
		}
		r := newRig(t, rigOptions{bytes: 4 * 4096, room: 3, model: model, Options: Options{Depth: 1, Block: 4096}})
		in := &reader{inbox: inbox{rig: r}}
		r.p.Demand(eid(0, 3), 3, in)
		time.Sleep(time.Second)
		if got := in.letters(); len(got) != 1 || !errors.Is(got[0].err, errDrive) {
			t.Fatalf("got %+v, want the drive's error", got)
		}
		if m := r.cache.Stats(); m.Strays != 1 {
			t.Errorf("got %d strays, want 1: the part is held", m.Strays)
		}
		others := &inbox{rig: r}
		for e := range 6 {
			r.p.Demand(eid(1, e), e, others)
			time.Sleep(20 * ms)
		}
		in.whole(t)
		in.release()
		if m := r.cache.Stats(); m.Strays != 0 || m.Fills != 0 {
			t.Errorf("after the release: got %d strays, %d fills, want none", m.Strays, m.Fills)
		}
		r.close()
	})
}

// A wrong checksum behind a part that is held: the second read goes elsewhere.
func TestHeldPartsAreNotReadOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		model := pages
		model.Rule = device.Script(device.Effect{}, device.Effect{}, device.Effect{}, device.Effect{Flip: true})
		r := newRig(t, rigOptions{bytes: 4 * 4096, model: model, Options: Options{Depth: 1, Block: 4096}})
		in := &reader{inbox: inbox{rig: r, keep: true}}
		r.p.Demand(eid(0, 3), 3, in)
		time.Sleep(time.Second)
		got := in.letters()
		if len(got) != 1 || got[0].err != nil {
			t.Fatalf("got %+v, want the right bytes", got)
		}
		parts := in.arrivedParts()
		if len(parts) == 0 || &parts[0].data[0] == &got[0].lease.Bytes()[0] {
			t.Error("the expert lies where its held part does, want elsewhere")
		}
		if m := r.cache.Stats(); m.Strays != 1 {
			t.Errorf("got %d strays, want 1", m.Strays)
		}
		in.whole(t)
		in.release()
		in.drop()
		if m := r.cache.Stats(); m.Strays != 0 {
			t.Errorf("after the release: got %d strays, want none", m.Strays)
		}
		r.close()
	})
}

func TestCloseLeavesHeldParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, rigOptions{bytes: 4 * 4096, model: pages, Options: Options{Depth: 1, Block: 4096}})
		in := &reader{inbox: inbox{rig: r}}
		r.p.Demand(eid(0, 3), 3, in)
		time.Sleep(2*ms + ms/2)
		if err := r.p.Close(); err != nil {
			t.Fatal(err)
		}
		if got := in.letters(); len(got) != 1 || !errors.Is(got[0].err, ErrClosed) {
			t.Errorf("got %+v, want %v", got, ErrClosed)
		}
		in.whole(t)
		in.release()
		r.close()
	})
}

var _ PartWaiter = (*reader)(nil)
