package importer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"outrider/layout"
	"outrider/layout/gguf"
	"outrider/trace"
)

// formImatrix is llama.cpp's importance matrix in GGUF. Beside the sums it keeps, for
// each weight of a layer's experts, how many tokens were routed to each.
const formImatrix = "llama-imatrix"

// Only the tensors of counts are read. A stacked weight's has dimensions 1,
// experts; a weight that all tokens meet has one count.
var (
	expertCounts = regexp.MustCompile(`^blk\.(\d{1,6})\.ffn_(gate_up|gate|up|down)_exps\.weight\.counts$`)
	projections  = []string{"gate_up", "gate", "up", "down"}
)

func sniffImatrix(p *peek) bool {
	return bytes.HasPrefix(p.head, []byte("GGUF")) && bytes.Contains(p.head, []byte("imatrix.chunk_count"))
}

// imatrix is what was read of the file.
type imatrix struct {
	in     *input
	gguf   *gguf.File
	layers map[int]map[string][]float64 // block, projection: counts
}

func openImatrix(in *input) (*content, error) {
	path := in.files[0].path
	g, err := gguf.Open(layout.OS(), path)
	if errors.Is(err, gguf.ErrNotGGUF) {
		return nil, fmt.Errorf("%s: GGUF files are read in place: unpack it first: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	m := &imatrix{in: in, gguf: g, layers: map[int]map[string][]float64{}}
	for _, t := range g.Tensors() {
		if err := m.take(t); err != nil {
			return nil, err
		}
	}
	if len(m.layers) == 0 {
		return nil, in.files[0].damaged(place{}, "it has no counts of routed experts (blk.N.ffn_…_exps.weight.counts): was the model a mixture of experts?")
	}
	h, err := m.histogram()
	if err != nil {
		return nil, err
	}
	return &content{histogram: h}, nil
}

func (m *imatrix) take(t gguf.Tensor) error {
	name := expertCounts.FindStringSubmatch(t.Name)
	if name == nil {
		return nil // of a weight that is no routed expert's
	}
	block, ok := digits([]byte(name[1]))
	if !ok {
		return nil
	}
	counts, err := m.counts(t)
	if err != nil {
		return err
	}
	if len(counts) == 1 {
		return fmt.Errorf("%s: %w: tensor %s has one count for all experts: the file was made from a legacy .dat imatrix, which lost them; run llama-imatrix again", m.in.files[0].path, ErrLossy, t.Name)
	}
	if m.layers[block] == nil {
		m.layers[block] = map[string][]float64{}
	}
	m.layers[block][name[2]] = counts
	return nil
}

// counts reads a tensor of counts.
func (m *imatrix) counts(t gguf.Tensor) ([]float64, error) {
	at := place{offset: t.Offset}
	if t.TypeName() != gguf.F32.String() || t.Bytes > 4*layout.MaxExperts {
		return nil, m.in.files[0].damaged(at, "tensor %s has type %s and %d bytes, want up to %d float32", t.Name, t.TypeName(), t.Bytes, layout.MaxExperts)
	}
	raw := make([]byte, t.Bytes)
	if err := m.gguf.ReadTensor(t, raw); err != nil {
		return nil, err
	}
	var counts []float64
	for i := 0; i < len(raw); i += 4 {
		n := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		if n != math.Trunc(n) || n < 0 || math.IsInf(n, 0) {
			return nil, m.in.files[0].damaged(place{offset: t.Offset + int64(i)}, "tensor %s: %v is no count", t.Name, n)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

func (m *imatrix) histogram() (*trace.Histogram, error) {
	ids := slices.Sorted(maps.Keys(m.layers))
	rows, err := m.rows(ids)
	if err != nil {
		return nil, err
	}
	topK, err := m.topK(ids, rows)
	if err != nil {
		return nil, err
	}
	shape, err := m.in.counted(layout.Shape{Layers: len(ids), Experts: len(rows[0]), TopK: topK, LayerIDs: blockNumbers(ids)})
	if err != nil {
		return nil, err
	}
	h, err := m.in.newHistogram(shape, 1)
	if err != nil {
		return nil, err
	}
	h.Tables = []trace.Counts{{Counts: rows}}
	h.Unit, h.Source, h.Note = unitTokens, m.in.sourceText(formImatrix)+m.datasets(), m.chunks()
	return h, nil
}

// rows takes one projection's counts of each layer. All were multiplied by the same
// choices, so they agree, unless the file was saved in the middle of a pass or merged.
func (m *imatrix) rows(ids []int) (rows [][]float64, err error) {
	apart, equal := 0, true
	for _, id := range ids {
		var row []float64
		differs := false
		for _, name := range projections {
			counts := m.layers[id][name]
			if row == nil {
				row = counts
			}
			differs = differs || (counts != nil && !slices.Equal(counts, row))
		}
		if differs {
			apart++
		}
		if len(rows) > 0 && len(row) != len(rows[0]) {
			return nil, m.in.files[0].damaged(place{}, "block %d has %d experts, but block %d has %d", id, len(row), ids[0], len(rows[0]))
		}
		for _, n := range row {
			equal = equal && n == row[0]
		}
		rows = append(rows, row)
	}
	if equal {
		return nil, fmt.Errorf("%s: %w: all experts of each layer have the same count: the file was made from a legacy .dat imatrix, which lost them; run llama-imatrix again", m.in.files[0].path, ErrLossy)
	}
	if apart > 0 {
		m.in.note("In %d of %d layers the projections were counted differently, as in a file that was saved during a pass or merged: those of ffn_%s_exps are given.", apart, len(ids), m.first(ids[0]))
	}
	if slices.ContainsFunc(rows, func(row []float64) bool { return slices.Max(row) >= 1<<24 }) {
		m.in.note("Counts of 16,777,216 and more are rounded, because the file holds them as float32.")
	}
	return rows, nil
}

func (m *imatrix) first(id int) string {
	i := slices.IndexFunc(projections, func(name string) bool { return m.layers[id][name] != nil })
	return projections[i]
}

// topK is known only if each layer's router was counted too, and met exactly so many
// tokens that each of them chose the same number of experts; otherwise 0.
func (m *imatrix) topK(ids []int, rows [][]float64) (int, error) {
	k := 0.0
	for l, id := range ids {
		t, ok := m.gguf.Tensor(fmt.Sprintf("blk.%d.ffn_gate_inp.weight.counts", id))
		if !ok {
			return 0, nil
		}
		tokens, err := m.counts(t)
		if err != nil {
			return 0, err
		}
		uses := 0.0
		for _, n := range rows[l] {
			uses += n
		}
		if len(tokens) != 1 || tokens[0] == 0 || uses >= 1<<53 || (k != 0 && uses != k*tokens[0]) {
			return 0, nil
		}
		k = uses / tokens[0]
	}
	if k != math.Trunc(k) || k < 1 || k > float64(len(rows[0])) {
		return 0, nil
	}
	return int(k), nil
}

// datasets names the texts, without the folders they lay in.
func (m *imatrix) datasets() string {
	v, _ := m.gguf.Meta("imatrix.datasets")
	names, _ := v.Strings()
	if len(names) == 0 {
		return ""
	}
	for i, name := range names {
		names[i] = strings.ToValidUTF8(filepath.Base(strings.ReplaceAll(name, `\`, "/")), "?")
	}
	return ", over " + strings.Join(names, ", ")
}

func (m *imatrix) chunks() string {
	count, _ := m.gguf.Meta("imatrix.chunk_count")
	size, _ := m.gguf.Meta("imatrix.chunk_size")
	n, okCount := count.Uint()
	s, okSize := size.Uint()
	if !okCount || !okSize {
		return ""
	}
	return fmt.Sprintf("%d chunks of %d tokens", n, s)
}
