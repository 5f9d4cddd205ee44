package importer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"outrider/layout"
	"outrider/trace"
)

// formMbolt is what mbolt's patched llama.cpp writes (environment variable
// MBOLT_TRACE), in little-endian int32:
//
//	magic "MBLT" | 1 | experts | records: layer, k, tokens, tokens × k ids
const formMbolt = "mbolt-trace"

const (
	mboltMagic   = "MBLT"
	mboltVersion = 1
)

func sniffMbolt(p *peek) bool { return bytes.HasPrefix(p.head, []byte(mboltMagic)) }

func openMbolt(in *input) (*content, error) {
	m := &mbolt{}
	m.records = passRecords{file: in.files[0], open: m.open}
	m.records.findTail(in)
	if m.warm > 0 {
		in.note("%d records in which each token uses all experts were left out: llama.cpp warms up with such a pass.", m.warm)
	}
	return openPasses(in, &passForm{name: formMbolt, each: m.records.each, whole: true, phase: m.phase})
}

// mbolt reads the records and tells the phase of each pass.
type mbolt struct {
	records passRecords
	src     *reader
	at      int64 // bytes read
	experts int
	topK    int // of the first record
	last    int // tokens of the record at hand
	ended   int // tokens of the record before: when a pass ends, of its last one
	warm    int // records of warm-up
	check   *rowCheck
	buf     []byte
}

// phase is asked when a pass has ended. One token is a decoded one, as mbolt itself
// counts it. Several are of a prompt where the last layer has one row, since its other
// outputs were not wanted; otherwise they may be of several sequences.
func (m *mbolt) phase(tokens int) trace.Phase {
	switch {
	case tokens == 1:
		return trace.Decode
	case m.ended == 1:
		return trace.Prefill
	}
	return trace.PhaseUnknown
}

func (m *mbolt) open(src *reader) (func(r *layerRows) error, error) {
	*m = mbolt{records: m.records, src: src, buf: m.buf}
	f := m.records.file
	head, err := m.ints(3)
	if err != nil {
		return nil, endOf(f, place{}, err, "the header")
	}
	switch {
	case string(head[:4]) != mboltMagic:
		return nil, f.damaged(place{}, "it begins with %q, want %q", head[:4], mboltMagic)
	case le32(head, 1) != mboltVersion:
		return nil, f.damaged(place{offset: 4}, "it has version %d, this program reads %d", le32(head, 1), mboltVersion)
	}
	if m.experts = int(le32(head, 2)); m.experts < 1 || m.experts > layout.MaxExperts {
		return nil, f.damaged(place{offset: 8}, "the model has %d experts, want 1 to %d", m.experts, layout.MaxExperts)
	}
	m.check = newRowCheck(m.experts, 0)
	return m.next, nil
}

// ints reads n numbers; they are valid until the next call.
func (m *mbolt) ints(n int) ([]byte, error) {
	if cap(m.buf) < 4*n {
		m.buf = make([]byte, 4*n)
	}
	got, err := io.ReadFull(m.src, m.buf[:4*n])
	m.at += int64(got)
	return m.buf[:4*n], err
}

func le32(b []byte, i int) int32 { return int32(binary.LittleEndian.Uint32(b[4*i:])) }

// next reads a record. Those in which a token uses all experts are of the pass
// that llama.cpp warms up with; they are passed over.
func (m *mbolt) next(r *layerRows) error {
	m.ended = m.last
	for {
		at := place{offset: m.at}
		head, err := m.ints(3)
		if err != nil {
			return m.stopped(err)
		}
		layer, k, tokens := int(le32(head, 0)), int(le32(head, 1)), int(le32(head, 2))
		if err := m.checkHead(at, layer, k, tokens); err != nil {
			return err
		}
		if k == m.experts {
			m.warm++
			n, err := m.src.Discard(4 * tokens * k)
			if m.at += int64(n); err != nil {
				return m.stopped(cutShort(err))
			}
			continue
		}
		m.last, m.topK, m.check.topK = tokens, k, k
		*r = layerRows{at: at, layer: layer, topK: k, experts: m.experts, ids: r.ids[:0]}
		return m.rows(r, tokens)
	}
}

func (m *mbolt) checkHead(at place, layer, k, tokens int) error {
	f := m.records.file
	switch {
	case layer < 0 || layer >= layout.MaxLayers:
		return f.damaged(at, "the record is of layer %d, want 0 to %d", layer, layout.MaxLayers-1)
	case k < 1 || k > m.experts:
		return f.damaged(at, "the record has %d ids a token, want 1 to %d", k, m.experts)
	case k != m.experts && m.topK != 0 && k != m.topK:
		return f.damaged(at, "the record has %d ids a token, those before have %d", k, m.topK)
	case tokens < 1 || tokens > MaxHeld/k:
		return f.damaged(at, "the record has %d tokens of %d ids, want at least one token and at most %d ids", tokens, k, MaxHeld)
	}
	return nil
}

// rows reads the ids of a record, token after token.
func (m *mbolt) rows(r *layerRows, tokens int) error {
	for range tokens {
		row, err := m.ints(r.topK)
		if err != nil {
			return m.stopped(cutShort(err))
		}
		for i := range r.topK {
			r.ids = append(r.ids, le32(row, i))
		}
		if err := m.check.check(r.ids[len(r.ids)-r.topK:]); err != nil {
			return m.records.file.damaged(place{offset: m.at - int64(4*r.topK)}, "%v", err)
		}
	}
	return nil
}

// stopped passes the end of the file on as it is.
func (m *mbolt) stopped(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return m.records.file.failed(err)
}
