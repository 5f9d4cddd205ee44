package trace

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Writer writes the binary form. Append only copies into a buffer of at most
// 64 KiB (one token, where that is larger), and writes when that is full, so a
// model runner can record while it runs: what is on the disk then is a whole
// trace but for its end mark. For one goroutine at a time.
type Writer struct {
	dst    io.Writer
	header Header
	check  checker
	buf    []byte // the frame being filled: room for its head and count, then tokens
	count  uint32 // tokens in buf
	seq    int64  // of the last token in buf, against which the next is coded
	pos    int64
	tokens uint64
	closed bool
	err    error
}

const tokensHeadBytes = frameHeadBytes + 4 // the count

// NewWriter writes the beginning of a trace to w. Close does not close w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	t := &Writer{dst: w, header: h}
	t.check = newChecker(&t.header)
	head := appendFileHead(nil, traceMagic)
	frame := sealFrame(appendHeader(make([]byte, frameHeadBytes), &h), frameHeader)
	if err := t.write(append(head, frame...)); err != nil {
		return nil, err
	}
	t.begin()
	return t, nil
}

// begin starts an empty frame.
func (t *Writer) begin() {
	t.buf = append(t.buf[:0], make([]byte, tokensHeadBytes)...)
	t.count, t.seq, t.pos = 0, 0, 0
}

func (t *Writer) write(b []byte) error {
	n, err := t.dst.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		t.err = fmt.Errorf("trace: write after %d tokens: %w", t.tokens, err)
	}
	return t.err
}

// Append adds one token; see Sink. What the header says the trace does not
// carry is left out; an unknown phase becomes the header's.
func (t *Writer) Append(a *Activation) error {
	if t.closed {
		return fmt.Errorf("trace: append: %w", ErrClosed)
	}
	if t.err != nil {
		return t.err
	}
	if err := t.check.check(a); err != nil {
		return fmt.Errorf("trace: %w: token %d: %w", ErrActivation, t.tokens, err)
	}
	t.buf = t.appendToken(t.buf, a)
	t.seq, t.pos = a.Seq, a.Pos
	t.count++
	t.tokens++
	if len(t.buf) >= frameTarget {
		return t.endFrame()
	}
	return nil
}

func (t *Writer) appendToken(b []byte, a *Activation) []byte {
	phase := a.Phase
	if phase == PhaseUnknown {
		phase = t.header.Phase
	}
	short := false
	topK := t.header.Shape.TopK
	for i := topK - 1; i < len(a.Experts) && !short; i += topK {
		short = a.Experts[i] < 0
	}
	flags := byte(phase)
	if short {
		flags |= flagShort
	}
	b = append(b, flags)
	b = binary.AppendVarint(b, a.Seq-t.seq)
	b = binary.AppendVarint(b, a.Pos-t.pos)
	if t.header.Tokens {
		b = binary.AppendUvarint(b, uint64(int64(a.Token)+1))
	}
	if short {
		for l := range t.header.Shape.Layers {
			ids, _ := a.Row(l, topK)
			b = binary.AppendUvarint(b, uint64(len(ids)))
		}
	}
	wide := idBytes(t.header.Shape.Experts) == 2
	for _, id := range a.Experts {
		switch {
		case id < 0:
		case wide:
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		default:
			b = append(b, byte(id))
		}
	}
	if t.header.Weights {
		for i, w := range a.Weights {
			if a.Experts[i] >= 0 {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(w))
			}
		}
	}
	return b
}

// endFrame writes the frame being filled, if it has tokens.
func (t *Writer) endFrame() error {
	if t.err != nil || t.count == 0 {
		return t.err
	}
	binary.LittleEndian.PutUint32(t.buf[frameHeadBytes:], t.count)
	t.buf = sealFrame(t.buf, frameTokens)
	if err := t.write(t.buf); err != nil {
		return err
	}
	t.begin()
	return nil
}

// Flush hands everything appended so far to the underlying writer, as a frame
// of its own: flushing after each token makes the trace larger.
func (t *Writer) Flush() error {
	if t.closed {
		return t.err
	}
	return t.endFrame()
}

// Close flushes and writes the end mark with the number of tokens.
func (t *Writer) Close() error {
	if t.closed {
		return t.err
	}
	t.closed = true
	if err := t.endFrame(); err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint64(make([]byte, frameHeadBytes), t.tokens)
	return t.write(sealFrame(end, frameEnd))
}
