package router

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// A saved forecast, version 1, all numbers little-endian:
//
//	magic    8 bytes, stateMagic
//	version  uint32
//	section  of the predictor: name, layers, experts, top-k
//	section  … what the predictor visits, in its order
//	end
//
//	section  packed uint32 │ raw uint32 │ sum uint32 │ packed bytes
//	end      0             │ 0          │ sum uint32 │ bytes of the file before the end uint64
//
// packed is the length in the file, raw that of what it holds: the same if the
// bytes are stored as they are, else less, by zstd. sum is the CRC-32C of all that
// the file holds before it and, for a section, of its packed bytes: so sections
// can neither change nor change places. Nothing may follow the end.
const (
	stateMagic   = "\x93ORSTATE"
	stateVersion = 1

	stateHeadBytes = 12
	// maxExpansion is the most that a section may shrink by; the writer stores it
	// as it is rather than shrink it further. So a reader never holds more than
	// this times what a file really has.
	maxExpansion = 256
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// stateWriter writes sections, each with one call of Write.
type stateWriter struct {
	out  io.Writer
	zip  *zstd.Encoder
	sum  uint32
	size int64
	head []byte
	pack []byte
}

func newStateWriter(out io.Writer) (*stateWriter, error) {
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20),
		zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("router: save: %w", err)
	}
	w := &stateWriter{out: out, zip: zip}
	return w, w.put(binary.LittleEndian.AppendUint32([]byte(stateMagic), stateVersion))
}

func (w *stateWriter) put(b []byte) error {
	n, err := w.out.Write(b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("router: save: %w", err)
	}
	w.sum = crc32.Update(w.sum, castagnoli, b)
	w.size += int64(n)
	return nil
}

// section writes one section of at least one byte.
func (w *stateWriter) section(raw []byte) error {
	if int64(len(raw)) > math.MaxUint32 {
		return fmt.Errorf("router: save: a section of %d bytes is too large", len(raw))
	}
	w.pack = w.zip.EncodeAll(raw, append(w.pack[:0], make([]byte, stateHeadBytes)...))
	if n := len(w.pack) - stateHeadBytes; n >= len(raw) || len(raw) > n*maxExpansion {
		w.pack = append(w.pack[:stateHeadBytes], raw...)
	}
	w.seal(len(w.pack)-stateHeadBytes, len(raw))
	return w.put(w.pack)
}

// end writes the end mark.
func (w *stateWriter) end() error {
	w.pack = binary.LittleEndian.AppendUint64(append(w.pack[:0], make([]byte, stateHeadBytes)...), uint64(w.size))
	w.seal(0, 0)
	return w.put(w.pack)
}

// seal fills in the head of the section in pack.
func (w *stateWriter) seal(packed, raw int) {
	binary.LittleEndian.PutUint32(w.pack, uint32(packed))
	binary.LittleEndian.PutUint32(w.pack[4:], uint32(raw))
	binary.LittleEndian.PutUint32(w.pack[8:], sumSection(w.sum, w.pack[:8], w.pack[stateHeadBytes:]))
}

func sumSection(before uint32, head, payload []byte) uint32 {
	return crc32.Update(crc32.Update(before, castagnoli, head), castagnoli, payload)
}

// stateReader reads sections. Memory grows with what really arrives.
type stateReader struct {
	in    io.Reader
	unzip *zstd.Decoder
	at    int64 // of the section at hand
	next  int64 // of what is read next
	sum   uint32
	pack  bytes.Buffer
	body  []byte
}

func newStateReader(in io.Reader) (*stateReader, error) {
	unzip, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("router: load: %w", err)
	}
	r := &stateReader{in: in, unzip: unzip}
	return r, r.open()
}

func (r *stateReader) close() { r.unzip.Close() }

// open checks magic and version.
func (r *stateReader) open() error {
	head, err := r.take(len(stateMagic) + 4)
	switch {
	case err != nil && !errors.As(err, new(*CorruptError)):
		return err
	case !bytes.HasPrefix(head, []byte(stateMagic)):
		return fmt.Errorf("router: load: %w", ErrNotState)
	case err != nil:
		return err
	}
	if v := binary.LittleEndian.Uint32(head[len(stateMagic):]); v != stateVersion {
		return fmt.Errorf("router: load: %w: it is of version %d, this program reads version %d", ErrStateVersion, v, stateVersion)
	}
	r.sum = crc32.Checksum(head, castagnoli)
	return nil
}

// take reads n bytes, valid until the next call. Of an input that ends before
// them it returns what there is, and a *CorruptError.
func (r *stateReader) take(n int) ([]byte, error) {
	r.pack.Reset()
	got, err := io.CopyN(&r.pack, r.in, int64(n))
	r.next += got
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.pack.Bytes(), r.damaged("it ends after %d bytes", r.next)
	}
	if err != nil {
		return nil, fmt.Errorf("router: load: %w", err)
	}
	return r.pack.Bytes(), nil
}

func (r *stateReader) damaged(format string, args ...any) error {
	return &CorruptError{Offset: r.at, Reason: fmt.Sprintf(format, args...)}
}

// section reads the next section, valid until the next call; nil at the end of
// the file, once that is checked.
func (r *stateReader) section() ([]byte, error) {
	r.at = r.next
	head, err := r.take(stateHeadBytes)
	if err != nil {
		return nil, err
	}
	packed, raw, want := binary.LittleEndian.Uint32(head), binary.LittleEndian.Uint32(head[4:]), binary.LittleEndian.Uint32(head[8:])
	sum := crc32.Update(r.sum, castagnoli, head[:8])
	end := packed == 0 && raw == 0
	if !end && (packed == 0 || packed > raw || int64(raw) > int64(packed)*maxExpansion || int64(raw) > math.MaxInt) {
		return nil, r.damaged("a section has %d bytes for %d", packed, raw)
	}
	length := int(packed)
	if end {
		length = 8
	}
	mark := crc32.Update(r.sum, castagnoli, head)
	payload, err := r.take(length)
	if err != nil {
		return nil, err
	}
	if got := crc32.Update(sum, castagnoli, payload); got != want {
		return nil, r.damaged("checksum is %08x, want %08x", got, want)
	}
	r.sum = crc32.Update(mark, castagnoli, payload)
	if end {
		return nil, r.finish(binary.LittleEndian.Uint64(payload))
	}
	return r.unpack(payload, int(raw))
}

// finish checks that the end mark is where it says, and the last thing.
func (r *stateReader) finish(size uint64) error {
	if size != uint64(r.at) {
		return r.damaged("the end mark counts %d bytes before it", size)
	}
	r.at = r.next
	rest, err := r.take(1)
	switch {
	case len(rest) > 0:
		return r.damaged("something follows the end mark")
	case errors.As(err, new(*CorruptError)):
		return nil
	}
	return err
}

func (r *stateReader) unpack(payload []byte, raw int) ([]byte, error) {
	if len(payload) == raw {
		r.body = append(r.body[:0], payload...)
		return r.body, nil
	}
	if cap(r.body) < raw {
		r.body = make([]byte, 0, raw)
	}
	body, err := r.unzip.DecodeAll(payload, r.body[:0:raw])
	if err != nil {
		return nil, r.damaged("it does not unpack: %v", err)
	}
	if len(body) != raw {
		return nil, r.damaged("it unpacks to %d bytes, want %d", len(body), raw)
	}
	return body, nil
}
