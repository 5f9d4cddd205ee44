package importer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"outrider/layout"
)

// formFlashMoE is what flash-moe's infer writes with --collect-routing, for the
// training of a predictor: a record for each layer of each token, little-endian,
//
//	layer i32 | k i32 | hidden × f32 (the layer's input) | k × i32
//
// There is no header. How many numbers the layer's input has is the model's: 4,096
// for the model that the tool was made for, otherwise found by reading the first records.
const formFlashMoE = "flash-moe-routing"

const (
	flashMoEHidden = 4096
	maxFlashMoETop = 64
	// flashMoEProof is how many records must fit before a width is believed.
	flashMoEProof = 2
)

func sniffFlashMoE(p *peek) bool {
	_, err := flashMoEWidth(p)
	return err == nil
}

// flashMoEWidth finds the width of a layer's input: the usual one if it fits,
// otherwise the smallest multiple of 64 that does. Larger ones may fit only where
// their records are several of the smallest's.
func flashMoEWidth(p *peek) (int, error) {
	if flashMoEFits(p, flashMoEHidden) {
		return flashMoEHidden, nil
	}
	found, size := 0, 0
	for hidden := 64; hidden <= len(p.head)/4; hidden += 64 {
		if !flashMoEFits(p, hidden) {
			continue
		}
		k := int(le32(p.head, 1))
		if found == 0 {
			found, size = hidden, 2+hidden+k
		} else if (2+hidden+k)%size != 0 {
			return 0, fmt.Errorf("layer inputs of %d and of %d numbers both fit the first records", found, hidden)
		}
	}
	if found == 0 {
		return 0, errors.New("the first records do not fit any width of a layer's input that is a multiple of 64: want records of layer, k, the layer's input as float32, and k ids")
	}
	return found, nil
}

// flashMoEFits reports whether the file's beginning is records of one k whose
// layers rise until they begin anew, with finite inputs and distinct ids.
func flashMoEFits(p *peek, hidden int) bool {
	if len(p.head) < 8 {
		return false
	}
	first, k := le32(p.head, 0), int(le32(p.head, 1))
	size := 8 + 4*hidden + 4*k
	if k < 1 || k > maxFlashMoETop {
		return false
	}
	last, records := first-1, 0
	for b := p.head; len(b) >= size; b = b[size:] {
		layer := le32(b, 0)
		if layer < 0 || layer >= layout.MaxLayers || int(le32(b, 1)) != k || (layer != last+1 && layer != first) {
			return false
		}
		if !finite(b[8:8+4*hidden]) || !flashMoEIDs(b[8+4*hidden:size]) {
			return false
		}
		last = layer
		records++
	}
	return records >= flashMoEProof
}

func finite(b []byte) bool {
	for ; len(b) > 0; b = b[4:] {
		if exp := binary.LittleEndian.Uint32(b) >> 23 & 255; exp == 255 {
			return false
		}
	}
	return true
}

func flashMoEIDs(b []byte) bool {
	ids := make([]int32, len(b)/4)
	for i := range ids {
		ids[i] = le32(b, i)
	}
	return outside(ids, layout.MaxExperts) < 0 && distinct(ids, len(ids)) == nil
}

func openFlashMoE(in *input) (*content, error) {
	p, err := in.peek()
	if err != nil {
		return nil, err
	}
	hidden, err := flashMoEWidth(p)
	if err != nil {
		return nil, in.files[0].damaged(place{}, "%v", err)
	}
	if hidden != flashMoEHidden {
		in.note("a layer's input has %d numbers: told by the first records, the file does not say.", hidden)
	}
	m := &flashMoE{hidden: hidden, topK: int(le32(p.head, 1))}
	m.records = passRecords{file: in.files[0], open: m.open}
	m.records.findTail(in)
	return openPasses(in, &passForm{name: formFlashMoE, each: m.records.each, whole: true})
}

// flashMoE reads the records.
type flashMoE struct {
	records      passRecords
	hidden, topK int
	src          *reader
	at           int64
}

func (m *flashMoE) open(src *reader) (func(r *layerRows) error, error) {
	m.src, m.at = src, 0
	return m.next, nil
}

func (m *flashMoE) next(r *layerRows) error {
	f, at := m.records.file, place{offset: m.at}
	var head [8]byte
	if _, err := io.ReadFull(m.src, head[:]); err != nil {
		return m.stopped(err)
	}
	layer, k := le32(head[:], 0), int(le32(head[:], 1))
	if layer < 0 || layer >= layout.MaxLayers || k != m.topK {
		return f.damaged(at, "a record of layer %d with %d ids, want a layer of 0 to %d and %d ids as before: the file is damaged, or a layer's input has not %d numbers",
			layer, k, layout.MaxLayers-1, m.topK, m.hidden)
	}
	if _, err := m.src.Discard(4 * m.hidden); err != nil {
		return m.stopped(cutShort(err))
	}
	ids := make([]byte, 4*k)
	if _, err := io.ReadFull(m.src, ids); err != nil {
		return m.stopped(cutShort(err))
	}
	m.at += int64(len(head) + 4*m.hidden + len(ids))
	*r = layerRows{at: at, layer: int(layer), topK: k, ids: r.ids[:0]}
	for i := range k {
		r.ids = append(r.ids, le32(ids, i))
	}
	if err := distinct(r.ids, k); err != nil {
		return f.damaged(place{offset: m.at - int64(len(ids))}, "%v", err)
	}
	return nil
}

// stopped passes the end of the file on as it is.
func (m *flashMoE) stopped(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return m.records.file.failed(err)
}
