package readertest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"outrider/layout"
)

const (
	fileBytes = 1<<20 + 1234 // it ends within a block
	block     = 16 << 10     // keeps any alignment
	depth     = 8
)

// Run holds the readers of files that open makes to the suite, each test inside of in
// (synctest.Test, say). Open returns a file of the given content.
func Run(t *testing.T, in func(*testing.T, func(*testing.T)), open func(t *testing.T, content []byte) layout.File) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, *subject){
		"Many": many, "Vectors": vectors, "End": end, "Refusals": refusals, "Room": room,
		"CloseWithReadsUnderWay": closeUnderWay, "AfterClose": afterClose, "TwoFiles": twoFiles,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				s := &subject{want: content(3), open: open}
				s.file = open(t, bytes.Clone(s.want))
				if s.r = layout.NewReader(s.file); s.r == nil {
					t.Fatalf("%T has no reader", s.file)
				}
				check(t, s)
				if err := errors.Join(s.r.Close(), s.r.Close()); err != nil {
					t.Errorf("Close twice: got %v, want nil", err)
				}
				_ = s.file.Close()
			})
		})
	}
}

// subject is a reader of a file and what that holds.
type subject struct {
	r    layout.Reader
	file layout.File
	want []byte
	open func(t *testing.T, content []byte) layout.File
}

func content(seed byte) []byte {
	b := make([]byte, fileBytes)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// right compares what a read brought with the file.
func right(t *testing.T, want []byte, bufs [][]byte, off int64, n int, err error) {
	t.Helper()
	got := bytes.Join(bufs, nil)
	want = want[min(off, int64(len(want))):min(off+int64(len(got)), int64(len(want)))]
	if n != len(want) || !bytes.Equal(got[:n], want) || (err != nil && err != io.EOF) || (n < len(got) && err != io.EOF) {
		t.Errorf("%d bytes at %d: got %d bytes and %v, want %d right ones", len(got), off, n, err, len(want))
	}
}

// many reads under way at once, each answered once, by its tag; some that are started
// while others are under way.
func many(t *testing.T, s *subject) {
	rng := rand.New(rand.NewPCG(1, 2))
	bufs, offs := make([][][]byte, depth), make([]int64, depth)
	started, open := 0, map[int]bool{}
	start := func(slot int) {
		bufs[slot] = [][]byte{aligned(block * (1 + rng.IntN(4)))}
		offs[slot] = rng.Int64N(fileBytes/block) * block
		open[slot] = true
		s.r.Start(s.file, slot, bufs[slot], offs[slot])
		started++
	}
	for slot := range depth {
		start(slot)
	}
	for range 200 {
		tag, n, err := s.r.Wait()
		if !open[tag] {
			t.Fatalf("got tag %d, which is not under way", tag)
		}
		delete(open, tag)
		right(t, s.want, bufs[tag], offs[tag], n, err)
		if started < 200 {
			start(tag)
		}
		if len(open) == 0 {
			break
		}
	}
	if started != 200 || len(open) != 0 {
		t.Errorf("got %d reads started, %d open, want 200 and none", started, len(open))
	}
}

func vectors(t *testing.T, s *subject) {
	lists := [][]int{{block, block}, {block, 0, 3 * block}, {0, block}, {2 * block}}
	bufs := make([][][]byte, len(lists))
	for tag, sizes := range lists {
		for _, n := range sizes {
			bufs[tag] = append(bufs[tag], aligned(n))
		}
		s.r.Start(s.file, tag, bufs[tag], int64(tag)*block)
	}
	for range lists {
		tag, n, err := s.r.Wait()
		right(t, s.want, bufs[tag], int64(tag)*block, n, err)
	}
}

// end reads over the end of the file, behind it, and nothing.
func end(t *testing.T, s *subject) {
	offs := []int64{fileBytes / block * block, (fileBytes/block + 4) * block, 0}
	bufs := [][][]byte{{aligned(2 * block)}, {aligned(block)}, {nil}}
	for tag, off := range offs {
		s.r.Start(s.file, tag, bufs[tag], off)
	}
	for range offs {
		tag, n, err := s.r.Wait()
		right(t, s.want, bufs[tag], offs[tag], n, err)
		if (err == io.EOF) != (tag < 2) {
			t.Errorf("read %d at the end: got %v", tag, err)
		}
	}
}

// refusals go to the reads that were wrong, and to no others.
func refusals(t *testing.T, s *subject) {
	good := [][]byte{aligned(block)}
	s.r.Start(s.file, 0, [][]byte{aligned(block)}, -block)
	s.r.Start(s.file, 1, good, block)
	s.r.Start(s.file, 2, make([][]byte, layout.MaxVector+1), 0)
	s.r.Start(stranger{s.file}, 3, [][]byte{aligned(block)}, 0)
	for range 4 {
		tag, n, err := s.r.Wait()
		if tag == 1 {
			right(t, s.want, good, block, n, err)
		} else if n != 0 || err == nil || errors.Is(err, io.EOF) {
			t.Errorf("read %d: got %d bytes and %v, want a refusal", tag, n, err)
		}
	}
	if _, _, err := s.r.Wait(); err == nil {
		t.Error("Wait for nothing: got no error")
	}
	if layout.NewReader(s.file, stranger{s.file}) != nil || layout.NewReader(stranger{s.file}) != nil {
		t.Error("a file without a reader: got one")
	}
}

// stranger hides what a file can.
type stranger struct{ layout.File }

// room goes down with what is started, and comes back.
func room(t *testing.T, s *subject) {
	before := s.r.Room()
	if before < 2 {
		t.Fatalf("got room for %d, want several", before)
	}
	for tag := range 2 {
		s.r.Start(s.file, tag, [][]byte{aligned(block)}, 0)
	}
	if got := s.r.Room(); got != before-2 {
		t.Errorf("with two started: got room for %d, want %d", got, before-2)
	}
	s.r.Wait()
	if got := s.r.Room(); got != before-1 {
		t.Errorf("with one under way: got room for %d, want %d", got, before-1)
	}
	s.r.Wait()
	if got := s.r.Room(); got != before {
		t.Errorf("with none: got room for %d, want %d", got, before)
	}
}

// closeUnderWay: after Close nothing writes into buffers, and the file can be closed.
func closeUnderWay(t *testing.T, s *subject) {
	bufs := make([][][]byte, depth)
	for tag := range bufs {
		bufs[tag] = [][]byte{aligned(4 * block)}
		s.r.Start(s.file, tag, bufs[tag], 0)
	}
	s.r.Wait()
	s.r.Start(s.file, depth, [][]byte{aligned(block)}, 0) // not begun
	if err := errors.Join(s.r.Close(), s.file.Close()); err != nil {
		t.Errorf("Close with reads under way: got %v", err)
	}
	for _, b := range bufs {
		clear(b[0])
	}
	for tag, b := range bufs {
		if bytes.Count(b[0], []byte{0}) != len(b[0]) {
			t.Errorf("buffer %d was written to after Close", tag)
		}
	}
}

// afterClose: a closed reader reads nothing, and neither does one of a closed file.
func afterClose(t *testing.T, s *subject) {
	other := layout.NewReader(s.file)
	defer other.Close()
	if err := s.r.Close(); err != nil {
		t.Fatal(err)
	}
	s.r.Start(s.file, 5, [][]byte{aligned(block)}, 0)
	if tag, n, err := s.r.Wait(); tag != 5 || n != 0 || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed reader: got tag %d, %d bytes and %v, want 5, none and fs.ErrClosed", tag, n, err)
	}
	if err := s.file.Close(); err != nil {
		t.Fatal(err)
	}
	other.Start(s.file, 6, [][]byte{aligned(block)}, 0)
	if tag, n, err := other.Wait(); tag != 6 || n != 0 || !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed file: got tag %d, %d bytes and %v, want 6, none and fs.ErrClosed", tag, n, err)
	}
}

// twoFiles are read by one reader, if it was made for both.
func twoFiles(t *testing.T, s *subject) {
	want := content(4)
	other := s.open(t, bytes.Clone(want))
	defer other.Close()
	r := layout.NewReader(s.file, other)
	if r == nil {
		t.Skip("each file has an engine of its own here")
	}
	defer r.Close()
	bufs := [][][]byte{{aligned(block)}, {aligned(block)}}
	r.Start(s.file, 0, bufs[0], block)
	r.Start(other, 1, bufs[1], block)
	for range bufs {
		tag, n, err := r.Wait()
		right(t, [][]byte{s.want, want}[tag], bufs[tag], block, n, err)
	}
}
