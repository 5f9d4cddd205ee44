package importer

import (
	"fmt"

	"outrider/layout"
	"outrider/trace"
	"outrider/trace/importer/internal/torchfile"
)

// formSGLangCounts is a dump of SGLang's expert distribution recorder that
// counts: expert_distribution_recorder_<time>.pt of modes stat and stat_approx,
//
//	{"rank", "logical_count": [steps, layers, experts], "average_utilization_rate_over_window"}
//
// which KTransformers takes as --init-expert-location, or expert_distribution_recorder_<time>_<rank>.pt of mode per_pass,
//
//	{"records": [{"forward_pass_id", "rank", "gatherer_key", "global_physical_count": [layers, slots]}],
//	 "last_physical_to_logical_map": [layers, slots]}
const formSGLangCounts = "sglang-recorder-counts"

// maxSteps is how many steps stay apart; more are summed up.
const maxSteps = 4096

func sniffSGLangCounts(p *peek) bool {
	if !isZip(p) {
		return false
	}
	return p.mentions("data.pkl", "logical_count") ||
		(p.mentions("data.pkl", "records", "gatherer_key", "global_physical_count") && !p.mentions("input_ids"))
}

func openSGLangCounts(in *input) (*content, error) {
	d, err := in.files[0].openDump()
	if err != nil {
		return nil, err
	}
	defer d.close.Close() // nothing was written
	steps, err := d.steps(in)
	if err != nil {
		return nil, err
	}
	h, err := steps.histogram(in, d)
	if err != nil {
		return nil, err
	}
	return &content{histogram: h}, nil
}

// countSteps are counts of uses of logical experts in several steps.
type countSteps struct {
	layers, experts int
	labels          []string
	counts          [][]int64 // by step: layers × experts
}

func (d *sglangDump) steps(in *input) (*countSteps, error) {
	if _, passes := d.root.Get("records"); passes {
		return d.passSteps(in)
	}
	shape, numbers, err := d.ints(d.root, "logical_count", 3)
	if err != nil {
		return nil, err
	}
	s := &countSteps{}
	if err := s.setShape(d, shape[1], shape[2], "logical_count"); err != nil {
		return nil, err
	}
	for i := range int(shape[0]) {
		s.labels = append(s.labels, fmt.Sprintf("step %d", i))
		s.counts = append(s.counts, numbers[i*s.layers*s.experts:(i+1)*s.layers*s.experts])
	}
	return s, nil
}

func (s *countSteps) setShape(d *sglangDump, layers, experts int64, key string) error {
	if layers < 1 || layers > layout.MaxLayers || experts < 1 || experts > layout.MaxExperts {
		return d.wrong("%s has %d layers of %d experts, which no model has", key, layers, experts)
	}
	s.layers, s.experts = int(layers), int(experts)
	return nil
}

// passSteps reads the passes of mode per_pass.
func (d *sglangDump) passSteps(in *input) (*countSteps, error) {
	passes, err := d.records()
	if err != nil {
		return nil, err
	}
	m, err := d.expertMap()
	if err != nil {
		return nil, err
	}
	s, held := &countSteps{}, 0
	for i, pass := range passes {
		counts, err := s.pass(d, m, pass)
		if err != nil {
			return nil, fmt.Errorf("pass %d: %w", i, err)
		}
		if held += len(counts); held > trace.MaxHistogram {
			return nil, d.wrong("there are more than %d counts: split the recording", trace.MaxHistogram)
		}
		s.labels = append(s.labels, fmt.Sprintf("pass %d", i))
		s.counts = append(s.counts, counts)
	}
	switch {
	case !m.there:
		in.note("the dump has no last_physical_to_logical_map: experts are numbered by slots (physical).")
	case m.of != nil:
		in.note("uses of slots were put down to the experts that they held when the dump was made; if the engine moved experts during the recording (EPLB), some belong to others.")
	}
	return s, nil
}

// pass adds up a pass's uses of slots by expert.
func (s *countSteps) pass(d *sglangDump, m *expertMap, pass *torchfile.Dict) ([]int64, error) {
	shape, slots, err := d.ints(pass, "global_physical_count", 2)
	if err != nil {
		return nil, err
	}
	if s.layers == 0 {
		experts := shape[1]
		if m.there {
			experts = int64(m.experts)
		}
		if err := s.setShape(d, shape[0], experts, "global_physical_count"); err != nil {
			return nil, err
		}
	}
	width := s.experts
	if m.there {
		width = m.slots
	}
	if shape[0] != int64(s.layers) || shape[1] != int64(width) || (m.there && m.layers != s.layers) {
		return nil, d.wrong("global_physical_count has shape %v, which does not fit the passes before or last_physical_to_logical_map", shape)
	}
	counts := make([]int64, s.layers*s.experts)
	for i, n := range slots {
		layer, slot := i/int(shape[1]), i%int(shape[1])
		counts[layer*s.experts+int(m.expert(layer, int32(slot)))] += n
	}
	return counts, nil
}

// histogram leaves out layers that counted nothing: they have no router.
func (s *countSteps) histogram(in *input, d *sglangDump) (*trace.Histogram, error) {
	if len(s.counts) == 0 {
		return nil, d.wrong("the dump holds no step")
	}
	kept := s.used()
	if len(kept) == 0 {
		return nil, d.wrong("all counts are zero: nothing was recorded")
	}
	shape, err := in.shape(layout.Shape{Layers: s.layers, Experts: s.experts, TopK: max(in.opts.TopK, 1)})
	if err != nil {
		return nil, err
	}
	h := &trace.Histogram{
		Layers: len(kept), Experts: shape.Experts, TopK: in.opts.TopK, Unit: "tokens", Source: in.sourceText(formSGLangCounts),
	}
	h.LayerIDs = in.keptIDs(s.layers, kept)
	if n := s.layers - len(kept); n > 0 {
		in.note("%d of %d layers counted nothing: they have no router and were left out.", n, s.layers)
	}
	if len(s.counts) > maxSteps {
		in.note("the %d steps were summed up.", len(s.counts))
		s.sum()
	}
	for i, counts := range s.counts {
		t := trace.Counts{Label: s.labels[i]}
		for _, l := range kept {
			row := make([]float64, s.experts)
			for e := range row {
				row[e] = float64(counts[l*s.experts+e])
			}
			t.Counts = append(t.Counts, row)
		}
		h.Tables = append(h.Tables, t)
	}
	return h, nil
}

// used are the layers in which any step counted something.
func (s *countSteps) used() (kept []int) {
	for l := range s.layers {
		any := false
		for _, counts := range s.counts {
			for _, n := range counts[l*s.experts : (l+1)*s.experts] {
				any = any || n != 0
			}
		}
		if any {
			kept = append(kept, l)
		}
	}
	return kept
}

func (s *countSteps) sum() {
	total := make([]int64, s.layers*s.experts)
	for _, counts := range s.counts {
		for i, n := range counts {
			total[i] += n
		}
	}
	s.labels, s.counts = []string{""}, [][]int64{total}
}
