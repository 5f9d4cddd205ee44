package importer

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"outrider/trace"
)

// flashMoERecord is a record with an input of so many numbers.
func flashMoERecord(layer int32, hidden int, ids ...int32) string {
	b := []byte(int32Text(layer, int32(len(ids))))
	for i := range hidden {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.Sin(float64(i)+float64(layer)))))
	}
	return string(b) + int32Text(ids...)
}

// flashMoEText is two tokens of two layers, top 3.
func flashMoEText(hidden int) string {
	return flashMoERecord(0, hidden, 3, 1, 2) + flashMoERecord(1, hidden, 0, 5, 4) + flashMoERecord(0, hidden, 2, 1, 7) + flashMoERecord(1, hidden, 6, 0, 3)
}

func TestFlashMoE(t *testing.T) {
	want := []trace.Activation{{Pos: 0, Token: -1, Experts: []int32{3, 1, 2, 0, 5, 4}}, {Pos: 1, Token: -1, Experts: []int32{2, 1, 7, 6, 0, 3}}}
	for _, hidden := range []int{4096, 2048, 64, 7168} {
		i := txOpen(t, formFlashMoE, Options{Experts: 8}, txFile(t, "r.bin", flashMoEText(hidden)))
		h := i.Header()
		if s := h.Shape; s.Layers != 2 || s.TopK != 3 || s.LayerIDs != nil || h.IDs != trace.IDsLogical || h.Phase != trace.PhaseUnknown || h.Sequences == trace.Yes {
			t.Errorf("header is %+v", h)
		}
		txWantTokens(t, i, want)
		if told := strings.Contains(strings.Join(i.Notes(), ""), "told by the first records"); told != (hidden != 4096) {
			t.Errorf("width %d: notes are %q", hidden, i.Notes())
		}
	}
}

func TestFlashMoETorn(t *testing.T) {
	record := len(flashMoERecord(0, 64, 1, 2, 3))
	text := flashMoEText(64) + flashMoERecord(0, 64, 4, 5, 6)
	for _, cut := range []int{4 * record, 4*record + 4, 4*record + 100, 5*record - 1, 5 * record} {
		i := txOpen(t, formFlashMoE, Options{Experts: 8}, txFile(t, "r.bin", text[:cut]))
		if tokens, err := txTokens(i); err != nil || len(tokens) != 2 {
			t.Errorf("cut to %d bytes: got %d tokens, %v; want 2", cut, len(tokens), err)
		}
		if torn := strings.Contains(strings.Join(i.Notes(), ""), "the file ends inside"); torn != (cut > 4*record) {
			t.Errorf("cut to %d bytes: notes are %q", cut, i.Notes())
		}
	}
}

func TestFlashMoEDamage(t *testing.T) {
	ok := flashMoEText(64)
	// 200 records, so that the damage lies behind the first 64 KiB, which tell the width.
	long := strings.Repeat(ok, 100)
	txRunDamage(t, formFlashMoE, "r.bin", Options{Experts: 8}, []txDamage{
		{name: "empty", content: "", want: "do not fit any width"},
		{name: "text", content: strings.Repeat("hello ", 5000), want: "do not fit any width"},
		{name: "one record", content: flashMoERecord(0, 64, 1, 2, 3), want: "do not fit any width"},
		{name: "width no multiple of 64", content: flashMoEText(100), want: "do not fit any width"},
		{name: "two widths fit", content: strings.Repeat(int32Text(slices.Repeat([]int32{0, 2}, 40)...), 50), want: "both fit"},
		{name: "input not finite", content: ok[:40] + "\x00\x00\xc0\x7f" + ok[44:], want: "do not fit any width"},
		{name: "id outside", content: ok, want: "expert id 5 is outside 0 to 4", opts: &Options{Experts: 5}},
		{name: "wrong record later", content: long + "xxxxyyyy" + ok, want: "the file is damaged, or a layer's input has not 64 numbers", tokens: 199},
		{name: "id twice later", content: long + flashMoERecord(0, 64, 1, 2, 2) + ok, want: "named twice", tokens: 199},
		{name: "layer missing", content: long + flashMoERecord(0, 64, 1, 2, 3) + ok, want: "no rows of block 1", tokens: 200},
	})
}

func FuzzFlashMoE(f *testing.F) {
	txFuzz(f, formFlashMoE, "r.bin", Options{Experts: 8}, flashMoEText(64), flashMoEText(64)[:700])
}
