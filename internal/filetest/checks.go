package filetest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"

	"golang.org/x/sync/errgroup"

	"outrider/layout"
)

// sizes of files: around blocks and pages, and of a GGUF header's odd end.
var sizes = []int{1, 511, 512, 513, 1152, 4095, 4096, 4097, 16384, 100_003}

const (
	largeFile = 300_000 + 1234
	seed      = 20
)

func describes(open func([]byte) layout.File) error {
	for _, size := range sizes {
		s := newSubject(open, size)
		a := s.Direct()
		direct := a != (layout.Alignment{})
		switch {
		case s.Size() != int64(size):
			return fmt.Errorf("Size: got %d, want %d", s.Size(), size)
		case direct && (a.Memory < 1 || a.Offset < 1 || a.Memory&(a.Memory-1) != 0 || a.Offset&(a.Offset-1) != 0):
			return fmt.Errorf("Direct: got %+v, want powers of two", a)
		case layout.Engine(s.File) == "":
			return errors.New("Engine: got nothing, want a name")
		case layout.IsDirect(s.File) != (direct && layout.Engine(s.File) != layout.EngineBuffered):
			return fmt.Errorf("IsDirect: got %v with alignment %+v and engine %q", layout.IsDirect(s.File), a, layout.Engine(s.File))
		case layout.IsDirect(s.File) && layout.FallbackReason(s.File) != "":
			return fmt.Errorf("FallbackReason: got %q for a direct file, want none", layout.FallbackReason(s.File))
		}
		if err := s.Close(); err != nil {
			return fmt.Errorf("Close: got %w", err)
		}
	}
	return nil
}

func ranges(open func([]byte) layout.File) error {
	for _, size := range append([]int{largeFile}, sizes...) {
		s := newSubject(open, size)
		if err := s.read(0, s.blocks(size)); err != nil {
			return fmt.Errorf("whole file of %d bytes: %w", size, err)
		}
		rng := rand.New(rand.NewPCG(seed, uint64(size)))
		for range 40 {
			off := rng.IntN(size/s.block+2) * s.block
			if err := s.read(off, s.blocks(1+rng.IntN(size/2+1))); err != nil {
				return fmt.Errorf("file of %d bytes: %w", size, err)
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// vectors: however a range is cut into buffers, it is the same range.
func vectors(open func([]byte) layout.File) error {
	for _, size := range append([]int{largeFile}, sizes...) {
		s := newSubject(open, size)
		rng := rand.New(rand.NewPCG(seed, uint64(size)))
		for _, most := range []int{1, 2, 9, layout.MaxVector} {
			if err := s.readV(0, s.split(rng, s.blocks(size), most)); err != nil {
				return fmt.Errorf("whole file of %d bytes: %w", size, err)
			}
			for range 4 {
				off := rng.IntN(size/s.block+2) * s.block
				if err := s.readV(off, s.split(rng, s.blocks(1+rng.IntN(size/2+1)), most)); err != nil {
					return fmt.Errorf("file of %d bytes: %w", size, err)
				}
			}
		}
		if err := s.readV(0, []int{0, s.blocks(size), 0, 0}); err != nil {
			return fmt.Errorf("with empty buffers: %w", err)
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

func end(open func([]byte) layout.File) error {
	for _, size := range sizes {
		s := newSubject(open, size)
		last := (size - 1) / s.block * s.block
		for _, off := range []int{last, last + s.block, last + 2*s.block, s.blocks(1 << 30)} {
			for _, n := range []int{s.block, 3 * s.block, s.blocks(64 << 10)} {
				if err := errors.Join(s.read(off, n), s.readV(off, []int{n, s.block})); err != nil {
					return fmt.Errorf("file of %d bytes: %w", size, err)
				}
			}
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// nothing: no bytes are always there.
func nothing(open func([]byte) layout.File) error {
	s := newSubject(open, 4097)
	for _, off := range []int64{0, int64(s.block), 1 << 20} {
		b := s.buffer(0)
		if n, err := s.ReadAt(b.p, off); n != 0 || err != nil {
			return fmt.Errorf("ReadAt of nothing at %d: got %d bytes and %v", off, n, err)
		}
		for _, bufs := range [][][]byte{nil, {}, {b.p}, {b.p, nil}} {
			if n, err := layout.ReadV(s.File, bufs, off); n != 0 || err != nil {
				return fmt.Errorf("ReadVAt of nothing at %d: got %d bytes and %v", off, n, err)
			}
		}
	}
	return s.Close()
}

func refusals(open func([]byte) layout.File) error {
	s := newSubject(open, 100_003)
	b := s.buffer(s.block)
	n, err := s.ReadAt(b.p, -int64(s.block))
	if err := refuses("ReadAt before the start", n, err, nil, b); err != nil {
		return err
	}
	n, err = layout.ReadV(s.File, [][]byte{b.p}, -int64(s.block))
	if err := refuses("ReadVAt before the start", n, err, nil, b); err != nil {
		return err
	}
	many := make([][]byte, layout.MaxVector+1)
	for i := range many {
		many[i] = b.p
	}
	n, err = layout.ReadV(s.File, many, 0)
	if err := refuses("ReadVAt into too many buffers", n, err, nil, b); err != nil {
		return err
	}
	if err := s.read(0, s.block); err != nil {
		return fmt.Errorf("after the refusals: %w", err)
	}
	return s.Close()
}

// unaligned: a direct file refuses what breaks its alignment, and stays direct.
func unaligned(open func([]byte) layout.File) error {
	s := newSubject(open, 100_003)
	if s.Direct() == (layout.Alignment{}) {
		return s.Close()
	}
	type read struct {
		what string
		from int // of the buffer
		n    int
		off  int
	}
	reads := []read{{"half an offset", 0, 2 * s.block, s.block / 2}, {"half a length", 0, s.block + s.block/2, 0}, {"odd offset", 0, s.block, 1}, {"odd length", 0, s.block - 1, 0}}
	if s.block == 1 {
		reads = nil
	}
	if s.memory > 1 {
		reads = append(reads, read{"half an address", s.memory / 2, s.block, 0}, read{"odd address", 1, s.block, 0})
	}
	for _, r := range reads {
		good, b := s.buffer(s.block), s.buffer(2*s.block+s.memory)
		n, err := s.ReadAt(b.p[r.from:r.from+r.n], int64(r.off))
		if err := refuses("ReadAt with "+r.what, n, err, layout.ErrUnaligned, b); err != nil {
			return err
		}
		n, err = layout.ReadV(s.File, [][]byte{good.p, b.p[r.from : r.from+r.n]}, int64(r.off))
		if err := refuses("ReadVAt with "+r.what, n, err, layout.ErrUnaligned, good, b); err != nil {
			return err
		}
	}
	if layout.IsDirect(s.File) != (layout.Engine(s.File) != layout.EngineBuffered) || layout.FallbackReason(s.File) != "" {
		return fmt.Errorf("got engine %q because %q, want a refusal to change nothing", layout.Engine(s.File), layout.FallbackReason(s.File))
	}
	return s.Close()
}

// together: many readers of one file do not disturb each other.
func together(open func([]byte) layout.File) error {
	s := newSubject(open, largeFile)
	var group errgroup.Group
	for g := range 8 {
		group.Go(func() error {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 15 {
				off, n := rng.IntN(largeFile/s.block+2)*s.block, s.blocks(1+rng.IntN(32<<10))
				if err := s.read(off, n); err != nil {
					return err
				}
				if err := s.readV(off, s.split(rng, n, 5)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(group.Wait(), s.Close())
}

// closeDuringReads: reads under way end rightly or with fs.ErrClosed.
func closeDuringReads(open func([]byte) layout.File) error {
	for range 10 {
		s := newSubject(open, 100_003)
		var group errgroup.Group
		started := make(chan struct{}, 6)
		for g := range cap(started) {
			group.Go(func() error {
				for i := 0; ; i++ {
					b := s.buffer(s.blocks(20_000) + 2*s.span())
					n, err := 0, error(nil)
					if g%2 == 0 {
						n, err = s.ReadAt(b.p, int64(s.blocks(5000)))
					} else {
						n, err = layout.ReadV(s.File, [][]byte{b.p[:s.span()], b.p[s.span():]}, int64(s.blocks(5000)))
					}
					if i == 0 {
						started <- struct{}{}
					}
					if errors.Is(err, fs.ErrClosed) {
						return b.intact()
					}
					if err := errors.Join(s.judge(b.p, s.blocks(5000), n, err), b.intact()); err != nil {
						return err
					}
				}
			})
		}
		<-started
		if err := errors.Join(s.Close(), group.Wait()); err != nil {
			return err
		}
	}
	return nil
}

// afterClose: a closed file reads nothing and can be closed again without harm.
func afterClose(open func([]byte) layout.File) error {
	s := newSubject(open, 4097)
	if err := s.Close(); err != nil {
		return err
	}
	b := s.buffer(s.block)
	n, err := s.ReadAt(b.p, 0)
	if err := refuses("ReadAt after Close", n, err, fs.ErrClosed, b); err != nil {
		return err
	}
	n, err = layout.ReadV(s.File, [][]byte{b.p}, 0)
	if err := refuses("ReadVAt after Close", n, err, fs.ErrClosed, b); err != nil {
		return err
	}
	if err := s.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("second Close: got %w, want nothing or fs.ErrClosed", err)
	}
	return nil
}
