package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
)

// The history file, version 1; the package comment has the picture.
const (
	historyMagic = "\x93ORHISTO"

	frameExpert = 4

	historyHeaderLayerIDs = 1 << 0
	// maxHistoryFrame holds a bitmap of 2^32 rows with room to spare.
	maxHistoryFrame = 1 << 30
)

var _ io.WriterTo = (*History)(nil)

// WriteTo saves the history: one frame for each expert that was ever used. It
// makes one write of each frame, so give it a buffered writer.
func (h *History) WriteTo(w io.Writer) (int64, error) {
	var written int64
	put := func(b []byte) error {
		n, err := w.Write(b)
		written += int64(n)
		if err == nil && n < len(b) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return fmt.Errorf("trace: write history: %w", err)
		}
		return nil
	}
	head := sealFrame(h.appendHeader(make([]byte, frameHeadBytes)), frameHeader)
	if err := put(append(appendFileHead(nil, historyMagic), head...)); err != nil {
		return written, err
	}
	var frame bytes.Buffer
	for ordinal, e := range h.entries {
		if e.users == nil {
			continue
		}
		frame.Reset()
		fixed := make([]byte, frameHeadBytes, frameHeadBytes+12)
		fixed = binary.LittleEndian.AppendUint32(fixed, uint32(ordinal))
		frame.Write(binary.LittleEndian.AppendUint64(fixed, e.reuse))
		if _, err := e.users.WriteTo(&frame); err != nil {
			return written, fmt.Errorf("trace: encode history of %v: %w", h.shape.ID(ordinal), err)
		}
		if frame.Len() > maxHistoryFrame {
			return written, fmt.Errorf("trace: history of %v has %d bytes, want at most %d", h.shape.ID(ordinal), frame.Len(), maxHistoryFrame)
		}
		if err := put(sealFrame(frame.Bytes(), frameExpert)); err != nil {
			return written, err
		}
	}
	end := binary.LittleEndian.AppendUint64(make([]byte, frameHeadBytes), h.tokens)
	return written, put(sealFrame(end, frameEnd))
}

func (h *History) appendHeader(b []byte) []byte {
	b = appendShape(b, h.shape)
	b = binary.LittleEndian.AppendUint64(b, h.tokens)
	if h.shape.LayerIDs == nil {
		return append(b, 0)
	}
	return appendLayerIDs(append(b, historyHeaderLayerIDs), h.shape.LayerIDs)
}

// OpenHistory reads a saved history of size bytes into memory. A file that was
// cut is a *TornError, a damaged one a *CorruptError, another one ErrNotTrace or
// ErrVersion; a history is never returned in part. More may be added to it.
func OpenHistory(r io.ReaderAt, size int64) (*History, error) {
	var buf bytes.Buffer
	// What r really has decides how much is allocated, not what size says.
	if _, err := io.Copy(&buf, io.NewSectionReader(r, 0, size)); err != nil {
		return nil, fmt.Errorf("trace: read history: %w", err)
	}
	return ParseHistory(buf.Bytes())
}

// ParseHistory is OpenHistory of bytes in memory, such as a mapped file. The
// sets are not copied: the history reads from b, never writes to it, and needs
// it unchanged for as long as it lives. Sets that Add changes are copied first.
func ParseHistory(b []byte) (*History, error) {
	if len(b) < fileHeadBytes {
		if len(b) >= len(historyMagic) && string(b[:len(historyMagic)]) == historyMagic {
			return nil, &TornError{}
		}
		return nil, fmt.Errorf("trace: %w: the file has %d bytes", ErrNotTrace, len(b))
	}
	if err := checkFileHead(b, historyMagic, "history"); err != nil {
		return nil, err
	}
	p := historyParser{b: b, next: fileHeadBytes, last: -1}
	if err := p.parse(); err != nil {
		return nil, err
	}
	return p.history, nil
}

type historyParser struct {
	b       []byte
	at      int // of the frame at hand
	next    int
	last    int64 // ordinal of the expert before
	history *History
}

func (p *historyParser) damaged(format string, args ...any) error {
	return &CorruptError{Offset: int64(p.at), Reason: fmt.Sprintf(format, args...)}
}

func (p *historyParser) parse() error {
	kind, payload, err := p.frame()
	if err != nil {
		return err
	}
	if kind != frameHeader {
		return p.damaged("the first frame is of kind %d, want the header (%d)", kind, frameHeader)
	}
	if err := p.header(payload); err != nil {
		return err
	}
	for {
		switch kind, payload, err = p.frame(); {
		case err != nil:
			return err
		case kind == frameExpert:
			if err := p.expert(payload); err != nil {
				return err
			}
		case kind != frameEnd:
			return p.damaged("frame of kind %d, want an expert (%d) or the end (%d)", kind, frameExpert, frameEnd)
		case len(payload) != 8 || binary.LittleEndian.Uint64(payload) != p.history.tokens:
			return p.damaged("the end mark does not repeat the header's %d tokens", p.history.tokens)
		case p.next != len(p.b):
			return p.damaged("%d bytes follow the end mark", len(p.b)-p.next)
		default:
			return nil
		}
	}
}

// frame steps to the next frame and checks its sum.
func (p *historyParser) frame() (kind uint32, payload []byte, err error) {
	p.at = p.next
	c := cursor{b: p.b[p.at:]}
	head := c.bytes(frameHeadBytes)
	if c.bad {
		return 0, nil, p.torn()
	}
	kind = binary.LittleEndian.Uint32(head)
	length := binary.LittleEndian.Uint32(head[4:])
	if kind == 0 || length == 0 || length > maxHistoryFrame {
		return 0, nil, p.damaged("frame of kind %d has %d bytes, want 1 to %d", kind, length, maxHistoryFrame)
	}
	payload = c.bytes(int(length))
	want := c.u32()
	if c.bad {
		return 0, nil, p.torn()
	}
	if got := frameSum(head, payload); got != want {
		return 0, nil, p.damaged("checksum is %08x, want %08x", got, want)
	}
	p.next = p.at + frameHeadBytes + int(length) + frameTailBytes
	return kind, payload, nil
}

// torn keeps nothing: sets that lack some experts would lie about the others.
func (p *historyParser) torn() error { return &TornError{} }

func (p *historyParser) header(payload []byte) error {
	c := cursor{b: payload}
	shape := c.shape()
	tokens := c.u64()
	flags := c.u8()
	if flags&^historyHeaderLayerIDs != 0 {
		return p.damaged("header has unknown flags %#x", flags)
	}
	// Before the layer ids, whose number it gives.
	if err := shape.Validate(); err != nil {
		return p.damaged("%v", err)
	}
	if flags != 0 {
		shape.LayerIDs = c.layerIDs(shape.Layers)
	}
	if c.bad || len(c.b) > 0 {
		return p.damaged("header does not fill its frame of %d bytes", len(payload))
	}
	if tokens > math.MaxUint32 {
		return p.damaged("header counts %d tokens, want at most %d", tokens, uint32(math.MaxUint32))
	}
	h, err := NewHistory(shape)
	if err != nil {
		return p.damaged("%v", err)
	}
	h.tokens = tokens
	p.history = h
	return nil
}

func (p *historyParser) expert(payload []byte) error {
	c := cursor{b: payload}
	ordinal, reuse := int64(c.u32()), c.u64()
	h := p.history
	if c.bad || ordinal <= p.last || ordinal >= int64(len(h.entries)) {
		return p.damaged("expert %d of %d stands after expert %d", ordinal, len(h.entries), p.last)
	}
	users, err := parseBitmap(c.b)
	if err != nil {
		return p.damaged("%v: %v", h.shape.ID(int(ordinal)), err)
	}
	n := users.GetCardinality()
	if n == 0 || uint64(users.Maximum()) >= h.tokens || reuse >= n {
		return p.damaged("%v has %d users and %d reuses, which do not fit %d tokens", h.shape.ID(int(ordinal)), n, reuse, h.tokens)
	}
	h.entries[ordinal] = historyEntry{users: users, reuse: reuse}
	p.last = ordinal
	return nil
}

// parseBitmap makes a set of its bytes. The checksum shows that they are as they
// were written, not that they were written by a friend: so the set is validated,
// and a panic of the library becomes an error.
func parseBitmap(b []byte) (users *roaring.Bitmap, err error) {
	defer func() {
		if r := recover(); r != nil {
			users, err = nil, fmt.Errorf("bitmap: %v", r)
		}
	}()
	users = roaring.New()
	n, err := users.FromBuffer(b)
	if err != nil {
		return nil, fmt.Errorf("bitmap: %w", err)
	}
	if n != int64(len(b)) {
		return nil, errors.New("bitmap does not fill its frame")
	}
	if err := users.Validate(); err != nil {
		return nil, fmt.Errorf("bitmap: %w", err)
	}
	return users, nil
}
