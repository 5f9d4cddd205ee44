package overlap

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// refusing lets some ioctls fail.
func refusing(m *Memory, request uintptr, no unix.Errno, times int) {
	m.uffd.call = func(fd, r uintptr, args *[5]uint64) error {
		if r == request && times != 0 {
			times--
			return no
		}
		return control(fd, r, args)
	}
}

// A page that the kernel looks at for a moment is tried again, one that it does not let
// go is copied. Nobody notices.
func TestPagesThatAreBusy(t *testing.T) {
	for name, times := range map[string]int{"a moment": 5, "for good": -1} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(t)
			id := expert(1, 2)
			begin(t, m)
			m.Expect(1, []int32{2})
			early := reader(t, m.place(id), fillByte(id))
			b := take(t, m, id)
			m.mu.Lock()
			refusing(m, ioctlMove, unix.EBUSY, times)
			m.mu.Unlock()
			publish(t, m, b)
			if !<-early {
				t.Error("a thread read something else than the expert")
			}
			if got := allCommitted(t, m); got != large {
				t.Errorf("%d bytes are memory, want %d", got, large)
			}
			if err := m.End(); err != nil {
				t.Error(err)
			}
			// Neither can they move back then: they go, and new ones come.
			b, err := m.Move(b, expert(1, 5), large)
			if err != nil {
				t.Fatal(err)
			}
			fill(b, 9)
			if got := allCommitted(t, m); got != large {
				t.Errorf("moved back: %d bytes are memory, want %d", got, large)
			}
		})
	}
}

// An expert that cannot be shown fails the pass and those after it, until it has been
// read anew.
func TestExpertThatCannotBeShown(t *testing.T) {
	m := newMemory(t)
	id := expert(1, 2)
	b := take(t, m, id)
	refusing(m, ioctlMove, unix.ENOMEM, 1)
	for range 2 {
		if err := m.Publish(b); err == nil {
			t.Fatal("got no error")
		}
	}
	if got := committed(t, m.stacks[1]); got != 0 {
		t.Errorf("%d bytes of it are at its address", got)
	}
	m.Give(b)
	b = take(t, m, id)
	publish(t, m, b)
	if !holds(t, m.place(id), fillByte(id)) {
		t.Error("read anew: it is not at its address")
	}
	m.Give(b)
	if got := allCommitted(t, m); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}

// An expert may have been read into another slot while its last one is on its way back.
func TestTwoSlotsOfOneExpert(t *testing.T) {
	m := newMemory(t)
	id := expert(1, 0)
	old := take(t, m, id)
	publish(t, m, old)
	now := take(t, m, id)
	fill(now, 77)
	publish(t, m, now)
	m.Give(old)
	if !holds(t, m.place(id), 77) {
		t.Error("the new one is not at the address")
	}
	if got := allCommitted(t, m); got != large {
		t.Errorf("%d bytes are memory, want %d", got, large)
	}
}

// Slots are reserved when they run out, and found again by any address in them.
func TestSlotsGrow(t *testing.T) {
	m := newMemory(t)
	var lent [][]byte
	for i := range 3*firstSlots + 1 {
		b, err := m.Take(expert(0, i%shape.Experts), small)
		if err != nil {
			t.Fatal(err)
		}
		b[0], b[small-1] = byte(i), byte(i)
		lent = append(lent, b)
	}
	for i, b := range lent {
		s := m.slotOf(b[small-1:])
		if !bytes.Equal(s.b[:1], []byte{byte(i)}) || address(s.b) != address(b) {
			t.Fatalf("slot %d: found another one by its last byte", i)
		}
		m.Give(b)
	}
	if got := allCommitted(t, m); got != 0 {
		t.Errorf("%d bytes are left", got)
	}
}

// The file of faults ends with the memory, and its goroutine with it.
func TestCloseWithReadersGone(t *testing.T) {
	m, err := New(shape, []int64{small, large})
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	publish(t, m, take(t, m, expert(0, 0)))
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
