package layout

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRingReadIsRefusedLater: what a ring is refused after the proof is read
// by pread, and what pread is refused too through the page cache.
func TestRingReadIsRefusedLater(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EFAULT, unix.EOPNOTSUPP} {
		for _, pread := range []bool{true, false} {
			r, f, want := ringed(t, 2, 64<<10)
			if !pread {
				calls := *f.calls
				calls.preadv = refuseWith(errno)
				f.calls = &calls
			}
			k := newKernel(r.engine, func(uringSQE) (int32, bool) { return -int32(errno), true })
			engine := EngineBuffered
			if pread {
				engine = EnginePread
			}
			for i := range 2 { // the second time the ring is not asked
				buf := alignedBuffer(16<<10, 4096)
				n, err := read(t, f, [][]byte{buf[:4096], buf[4096:]}, 8192)
				if n != len(buf) || err != nil || !bytes.Equal(buf, want[8192:][:n]) {
					t.Errorf("%v, read %d: got %d bytes and %v, want all", errno, i, n, err)
				}
				if Engine(f) != engine || IsDirect(f) != pread || f.Direct() == (Alignment{}) || len(k.taken) != 1 {
					t.Errorf("%v, read %d: got engine %q, alignment %+v and %d reads of the ring, want %q, as before, and 1", errno, i, Engine(f), f.Direct(), len(k.taken), engine)
				}
			}
			ring, file := "", f.f.Name()
			if pread {
				ring, file = "but not by pread", ""
			}
			if !strings.Contains(r.Reason(), ring) || !strings.Contains(FallbackReason(f), file) || (FallbackReason(f) == "") != pread {
				t.Errorf("%v: got reasons %q and %q", errno, r.Reason(), FallbackReason(f))
			}
		}
	}
}

// TestRingAsksForVectors: one operation for all buffers, the plain one for a single
// buffer, from memory that stays alive.
func TestRingAsksForVectors(t *testing.T) {
	r, f, _ := ringed(t, 2, 64<<10)
	buf := alignedBuffer(32<<10, 4096)
	for _, test := range []struct {
		bufs   [][]byte
		opcode uint8
		lens   []int
	}{
		{[][]byte{buf[:4096], nil, buf[4096:12288], buf[12288:28672]}, uringOpReadv, []int{4096, 8192, 16384}},
		{[][]byte{nil, buf[4096:12288]}, uringOpRead, []int{8192}},
	} {
		total := 0
		for _, n := range test.lens {
			total += n
		}
		var reader *ringReader
		k := newKernel(r.engine, func(sqe uringSQE) (int32, bool) {
			var lens []int
			for _, v := range reader.slots[sqe.userData].iov {
				lens = append(lens, int(v.Len))
			}
			if len(lens) != len(test.lens) || lens[0] != test.lens[0] || sqe.opcode != test.opcode || sqe.off != 4096 {
				t.Errorf("got operation %d at %d into %d, want %d into %d", sqe.opcode, sqe.off, lens, test.opcode, test.lens)
			}
			return int32(total), true
		})
		reader = f.NewReader().(*ringReader)
		reader.Start(f, 0, test.bufs, 4096)
		if _, n, err := reader.Wait(); n != total || err != nil || len(k.taken) != 1 {
			t.Errorf("got %d bytes and %v by %d reads, want %d by 1", n, err, len(k.taken), total)
		}
		for i, v := range reader.slots[0].room {
			if v.Base != nil {
				t.Errorf("entry %d still keeps a buffer after the read", i)
			}
		}
	}
}

// TestProveFindsAFalseRing: OpenSystem does not take a ring that reads wrongly.
func TestProveFindsAFalseRing(t *testing.T) {
	r, err := OpenRing(RingOptions{Depth: 2})
	if err != nil {
		t.Skip(err)
	}
	defer r.Close()
	if err := r.engine.prove(); err != nil {
		t.Errorf("true ring: got %v", err)
	}
	for _, res := range []int32{4096, 100, -int32(unix.EOPNOTSUPP)} { // nothing is written
		newKernel(r.engine, func(uringSQE) (int32, bool) { return res, true })
		if err := r.engine.prove(); err == nil || errors.Is(err, ErrNoRing) {
			t.Errorf("answer %d: got %v, want an error", res, err)
		}
	}
	r.engine.enter = func(*uring, uint32, uint32) error { return unix.EPERM }
	if err := r.engine.prove(); err == nil || !strings.Contains(err.Error(), errNotTaken.Error()) {
		t.Errorf("nothing taken: got %v, want %v", err, errNotTaken)
	}
}
