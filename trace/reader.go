package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// Reader reads the binary form. For one goroutine at a time. It holds one frame
// (at most 4 MiB) and allocates nothing in the steady state.
type Reader struct {
	src     *bufio.Reader
	header  Header
	check   checker
	payload []byte // of the frame at hand
	rest    cursor // what of it is not yet delivered
	left    uint32 // tokens in rest
	seq     int64  // of the last token of the frame
	pos     int64
	counts  []int // ids in each layer's row, of a short token
	frameAt int64 // offset of the frame at hand
	next    int64 // offset of the frame after it
	tokens  int64
	err     error
}

// NewReader reads the beginning of a trace: ErrNotTrace, ErrVersion and
// *CorruptError tell what is wrong with it, a *TornError that it is too short
// to have a header. It does not close r.
func NewReader(r io.Reader) (*Reader, error) {
	t := &Reader{src: bufio.NewReaderSize(r, 64<<10)}
	var head [fileHeadBytes]byte
	n, err := io.ReadFull(t.src, head[:])
	if n < len(traceMagic) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return nil, fmt.Errorf("trace: %w: the file has %d bytes", ErrNotTrace, n)
	}
	if err != nil && n < len(traceMagic) {
		return nil, sourceError(err, 0)
	}
	if string(head[:len(traceMagic)]) == traceMagic && n < len(head) {
		return nil, sourceError(err, 0)
	}
	if err := checkFileHead(head[:], traceMagic, "binary trace"); err != nil {
		return nil, err
	}
	t.next = fileHeadBytes
	kind, err := t.readFrame()
	if err != nil {
		return nil, err
	}
	if kind != frameHeader {
		return nil, t.damaged("the first frame is of kind %d, want the header (%d)", kind, frameHeader)
	}
	if t.header, err = parseHeader(t.payload); err != nil {
		return nil, t.damaged("%v", err)
	}
	t.check = newChecker(&t.header)
	t.counts = make([]int, t.header.Shape.Layers)
	return t, nil
}

// Header describes the trace.
func (t *Reader) Header() Header { return t.header }

// Next reads the next token; see Stream.
func (t *Reader) Next(a *Activation) error {
	for t.err == nil && t.left == 0 {
		t.err = t.nextFrame()
	}
	if t.err != nil {
		return t.err
	}
	if err := t.readToken(a); err != nil {
		t.err = t.damaged("token %d: %v", t.tokens, err)
		return t.err
	}
	t.left--
	if t.left == 0 && len(t.rest.b) > 0 {
		t.err = t.damaged("%d bytes are left over in a frame of tokens", len(t.rest.b))
		return t.err
	}
	t.tokens++
	return nil
}

func (t *Reader) damaged(format string, args ...any) error {
	return &CorruptError{Offset: t.frameAt, Reason: fmt.Sprintf(format, args...)}
}

// nextFrame makes the next frame of tokens the one at hand, or answers io.EOF
// after a right end mark.
func (t *Reader) nextFrame() error {
	kind, err := t.readFrame()
	if err != nil {
		return err
	}
	switch kind {
	case frameTokens:
		t.rest = cursor{b: t.payload}
		t.left = t.rest.u32()
		t.seq, t.pos = 0, 0
		if t.rest.bad || t.left == 0 || uint64(t.left) > uint64(len(t.payload)) {
			return t.damaged("a frame of %d bytes says that it has %d tokens", len(t.payload), t.left)
		}
		return nil
	case frameEnd:
		return t.end()
	}
	return t.damaged("frame of kind %d, want tokens (%d) or the end (%d)", kind, frameTokens, frameEnd)
}

// end checks the end mark, and that nothing follows it.
func (t *Reader) end() error {
	c := cursor{b: t.payload}
	count := c.u64()
	if c.bad || len(c.b) > 0 {
		return t.damaged("the end mark has %d bytes, want 8", len(t.payload))
	}
	if count != uint64(t.tokens) {
		return t.damaged("the end mark counts %d tokens, but %d were there", count, t.tokens)
	}
	switch _, err := t.src.ReadByte(); {
	case err == nil:
		t.frameAt = t.next
		return t.damaged("bytes follow the end mark")
	case !errors.Is(err, io.EOF):
		return sourceError(err, t.tokens)
	}
	return io.EOF
}

// readFrame reads the next frame into t.payload and checks its sum. A file that
// ends before the frame does is torn.
func (t *Reader) readFrame() (kind uint32, err error) {
	t.frameAt = t.next
	var head [frameHeadBytes]byte
	if err := t.readFull(head[:]); err != nil {
		return 0, err
	}
	kind = binary.LittleEndian.Uint32(head[:])
	length := binary.LittleEndian.Uint32(head[4:])
	if kind == 0 || length == 0 || length > maxFrame {
		return 0, t.damaged("frame of kind %d has %d bytes, want 1 to %d", kind, length, maxFrame)
	}
	t.payload = resized(t.payload, int(length))
	if err := t.readFull(t.payload); err != nil {
		return 0, err
	}
	var tail [frameTailBytes]byte
	if err := t.readFull(tail[:]); err != nil {
		return 0, err
	}
	want := binary.LittleEndian.Uint32(tail[:])
	if got := frameSum(head[:], t.payload); got != want {
		return 0, t.damaged("checksum is %08x, want %08x", got, want)
	}
	t.next += int64(frameHeadBytes) + int64(length) + frameTailBytes
	return kind, nil
}

func frameSum(head, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, payload)
}

func (t *Reader) readFull(p []byte) error {
	_, err := io.ReadFull(t.src, p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return sourceError(err, t.tokens)
	}
	return nil
}

var errCut = errors.New("it does not fit into its frame")

func (t *Reader) readToken(a *Activation) error {
	c, h := &t.rest, &t.header
	flags := c.u8()
	if flags&^flagsAll != 0 {
		return fmt.Errorf("unknown flags %#x", flags)
	}
	t.seq += c.varint()
	t.pos += c.varint()
	a.Seq, a.Pos, a.Phase, a.Token = t.seq, t.pos, Phase(flags&flagPhase), -1
	if a.Phase == PhaseUnknown {
		a.Phase = h.Phase
	}
	if h.Tokens {
		token := c.uvarint()
		if token > math.MaxInt32+1 {
			return fmt.Errorf("token id %d is too large", token-1)
		}
		a.Token = int32(int64(token) - 1)
	}
	n := h.ids()
	short := flags&flagShort != 0
	if short {
		n = 0
		for l := range t.counts {
			count := c.uvarint()
			if count > uint64(h.Shape.TopK) {
				return fmt.Errorf("layer %d has %d ids, want at most %d", l, count, h.Shape.TopK)
			}
			t.counts[l] = int(count)
			n += int(count)
		}
	}
	ids := c.bytes(n * idBytes(h.Shape.Experts))
	var weights []byte
	if h.Weights {
		weights = c.bytes(4 * n)
	}
	if c.bad {
		return errCut
	}
	t.unpack(a, ids, weights)
	if short {
		t.spread(a)
	}
	return t.check.check(a)
}

// unpack turns the packed ids and weights into the first entries of a's slices,
// which it gives their full length.
func (t *Reader) unpack(a *Activation, ids, weights []byte) {
	a.Experts = resized(a.Experts, t.header.ids())
	if idBytes(t.header.Shape.Experts) == 1 {
		for i, id := range ids {
			a.Experts[i] = int32(id)
		}
	} else {
		for i := 0; i < len(ids); i += 2 {
			a.Experts[i/2] = int32(binary.LittleEndian.Uint16(ids[i:]))
		}
	}
	if !t.header.Weights {
		a.Weights = a.Weights[:0]
		return
	}
	a.Weights = resized(a.Weights, t.header.ids())
	for i := 0; i < len(weights); i += 4 {
		a.Weights[i/4] = math.Float32frombits(binary.LittleEndian.Uint32(weights[i:]))
	}
}

// spread moves packed rows to where they belong, from the last to the first so
// that none is overwritten, and fills them up.
func (t *Reader) spread(a *Activation) {
	topK := t.header.Shape.TopK
	from := 0
	for _, n := range t.counts {
		from += n
	}
	for l := len(t.counts) - 1; l >= 0; l-- {
		n := t.counts[l]
		from -= n
		row := a.Experts[l*topK : (l+1)*topK]
		copy(row, a.Experts[from:from+n])
		for i := n; i < topK; i++ {
			row[i] = -1
		}
		if t.header.Weights {
			row := a.Weights[l*topK : (l+1)*topK]
			copy(row, a.Weights[from:from+n])
			clear(row[n:])
		}
	}
}
