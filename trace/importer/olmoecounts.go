package importer

import (
	"fmt"
	"slices"
	"strings"

	"outrider/layout"
)

// formOlmoeCounts is the counts of the OLMoE study, one object with a table
// for each model and domain:
//
//	{"olmoe/expert_counts/c4": [{"14": 23094, …} for each recorded layer], …}
//
// expert_counts counts all chosen experts, expert_counts_top1 the first only;
// tables with crosslayer in their name count pairs.
const formOlmoeCounts = "olmoe-counts"

const (
	olmoeAll   = "expert_counts"
	olmoeFirst = "expert_counts_top1"
)

func sniffOlmoeCounts(p *peek) bool {
	for key := range p.keys() {
		if _, table, ok := olmoeKey(key); ok && strings.HasPrefix(table, olmoeAll) {
			return true
		}
	}
	return false
}

// olmoeKey cuts a key into the model and the rest.
func olmoeKey(key string) (model, table string, ok bool) {
	model, table, ok = strings.Cut(key, "/")
	return model, table, ok && model != "" && strings.Contains(table, "/")
}

func openOlmoeCounts(in *input) (*content, error) {
	f := in.files[0]
	var all entries[elements[tally]]
	if err := f.decodeJSON(&all); err != nil {
		return nil, err
	}
	model, tables, err := olmoeModel(in, all)
	if err != nil {
		return nil, err
	}
	tables = withoutPairs(in, tables)
	if len(tables) == 0 {
		return nil, f.damaged(place{}, "model %.40q has no table of experts", model)
	}
	shape, err := in.counted(layout.Shape{Layers: len(tables[0].value), TopK: olmoeTopK(tables)})
	if err != nil {
		return nil, err
	}
	if shape.LayerIDs == nil {
		in.note("Which %d layers of the model the rows are is not told.", shape.Layers)
	}
	h, err := in.talliedHistogram(shape, tables)
	if err != nil {
		return nil, err
	}
	h.Model, h.Source = model, in.sourceText(formOlmoeCounts)
	return &content{histogram: h}, nil
}

// olmoeModel takes the tables of one model, with its name cut off: the one asked
// for, or the only one.
func olmoeModel(in *input, all entries[elements[tally]]) (model string, tables entries[elements[tally]], err error) {
	var models []string
	byModel := map[string]entries[elements[tally]]{}
	for _, t := range all {
		model, table, ok := olmoeKey(t.key)
		if !ok {
			return "", nil, in.files[0].damaged(place{}, "key %.80q is not model/table/domain", t.key)
		}
		if !slices.Contains(models, model) {
			models = append(models, model)
		}
		byModel[model] = append(byModel[model], entry[elements[tally]]{table, t.value})
	}
	model = in.opts.Model
	if model == "" && len(models) == 1 {
		model = models[0]
	}
	if byModel[model] == nil {
		return "", nil, fmt.Errorf("%s: %w: the file holds %d models: choose one with --model: %s", in.files[0].path, ErrNeedShape, len(models), strings.Join(models, ", "))
	}
	if len(models) > 1 {
		in.note("The file holds %d models; the others were left out.", len(models))
	}
	return model, byModel[model], nil
}

// olmoeTopK compares all choices with first choices, of which each token has one.
// It is known if all pairs of tables say the same whole number; otherwise 0.
func olmoeTopK(tables entries[elements[tally]]) int {
	first := map[string]elements[tally]{}
	for _, t := range tables {
		if domain, ok := strings.CutPrefix(t.key, olmoeFirst+"/"); ok {
			first[domain] = t.value
		}
	}
	k := 0.0
	for _, t := range tables {
		domain, ok := strings.CutPrefix(t.key, olmoeAll+"/")
		if !ok || len(first[domain]) != len(t.value) {
			continue
		}
		for l := range t.value {
			tokens, uses := first[domain][l].total(), t.value[l].total()
			if tokens == 0 || (k != 0 && uses != k*tokens) {
				return 0
			}
			k = uses / tokens
		}
	}
	if k < 1 || k > layout.MaxExperts || k != float64(int(k)) {
		return 0
	}
	return int(k)
}
