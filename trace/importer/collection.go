package importer

import (
	"cmp"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// formCollection is the neutral JSON of a collection of published histograms: one
// object with "kind":"histogram" and the counts under one of five keys, named
// after what was published.
const formCollection = "histogram-collection"

type collected struct {
	Kind     string `json:"kind"`
	Model    string `json:"model"`
	Experts  int    `json:"experts"`
	TopK     int    `json:"top_k"`
	Layers   int    `json:"layers"`
	Recorded []int  `json:"layers_recorded"`
	Source   string `json:"source"`
	Note     string `json:"note"`

	// One of these.
	Heat     elements[countRow]       `json:"heat"`                 // uses
	Prompts  elements[countRow]       `json:"prompts_using_expert"` // prompts
	Subjects entries[subjectMean]     `json:"subjects"`             // shares
	Counts   entries[elements[tally]] `json:"counts"`               // uses, a table for each data set
	Steps    entries[[]countRow]      `json:"steps"`                // "encoder_l3": uses in each pass
}

// collectionKeys are what one of must be there.
var collectionKeys = []string{"heat", "prompts_using_expert", "subjects", "counts", "steps"}

func sniffCollection(p *peek) bool {
	keys := p.keys()
	if !keys["kind"] || keys["tables"] || !keys["experts"] {
		return false
	}
	for _, key := range collectionKeys {
		if keys[key] {
			return true
		}
	}
	return false
}

func openCollection(in *input) (*content, error) {
	f := in.files[0]
	var c collected
	if err := f.decodeJSON(&c); err != nil {
		return nil, err
	}
	if c.Kind != "histogram" {
		return nil, f.damaged(place{}, "kind is %.40q, want \"histogram\"", c.Kind)
	}
	var h *trace.Histogram
	var err error
	switch {
	case c.Heat != nil:
		h, err = c.dense(in, unitTokens, []trace.Counts{{Counts: plain(c.Heat)}})
	case c.Prompts != nil:
		h, err = c.dense(in, unitPrompts, []trace.Counts{{Counts: plain(c.Prompts)}})
	case c.Subjects != nil:
		h, err = c.dense(in, unitShare, subjectTables(in, c.Subjects))
	case c.Counts != nil:
		h, err = c.tallies(in)
	case c.Steps != nil:
		h, err = c.steps(in)
	default:
		err = f.damaged(place{}, "it has none of the keys %s", strings.Join(collectionKeys, ", "))
	}
	if err != nil {
		return nil, err
	}
	h.Source, h.Note = c.Source, c.Note
	if h.Model = c.Model; c.Source == "" {
		h.Source = in.sourceText(formCollection)
	}
	return &content{histogram: h}, nil
}

// shape joins what the object tells with the rows that were found: their number,
// and their width where they have a count for each expert (otherwise 0). Which
// layers the rows are may not be told.
func (c *collected) shape(in *input, rows, width int, ids []int) (layout.Shape, error) {
	told := layout.Shape{Layers: rows, Experts: cmp.Or(c.Experts, width), TopK: c.TopK, LayerIDs: blockNumbers(ids)}
	if c.Layers != 0 && c.Layers != rows {
		return told, in.files[0].damaged(place{}, "it has rows for %d layers, but tells of %d", rows, c.Layers)
	}
	if c.Recorded != nil {
		if len(c.Recorded) != rows {
			return told, in.files[0].damaged(place{}, "it has rows for %d layers, but layers_recorded names %d", rows, len(c.Recorded))
		}
		told.LayerIDs = blockNumbers(c.Recorded)
	}
	if c.Layers == 0 && c.Recorded == nil && ids == nil {
		in.note("Which %d layers of the model the rows are is not told.", rows)
	}
	return in.counted(told)
}

func (c *collected) dense(in *input, unit string, tables []trace.Counts) (*trace.Histogram, error) {
	if len(tables) == 0 {
		return nil, in.files[0].damaged(place{}, "it holds no table")
	}
	rows := tables[0].Counts
	if len(rows) == 0 {
		return nil, in.files[0].damaged(place{}, "table %q has no rows", tables[0].Label)
	}
	shape, err := c.shape(in, len(rows), len(rows[0]), nil)
	if err != nil {
		return nil, err
	}
	h, err := in.newHistogram(shape, len(tables))
	if err != nil {
		return nil, err
	}
	h.Unit, h.Tables = unit, tables
	return h, nil
}

// tallies takes the tables of experts; those of pairs of experts are left out.
func (c *collected) tallies(in *input) (*trace.Histogram, error) {
	tables := withoutPairs(in, c.Counts)
	if len(tables) == 0 {
		return nil, in.files[0].damaged(place{}, "it holds no table")
	}
	shape, err := c.shape(in, len(tables[0].value), 0, nil)
	if err != nil {
		return nil, err
	}
	return in.talliedHistogram(shape, tables)
}

// steps turns a list of passes for each layer into a table for each pass.
func (c *collected) steps(in *input) (*trace.Histogram, error) {
	stacks := newStacks()
	for _, s := range c.Steps {
		name, number, found := strings.Cut(s.key, "_l")
		layer, ok := digits([]byte(number))
		if !found || !ok {
			return nil, in.files[0].damaged(place{}, "key %.40q of steps is not a stack and a layer: encoder_l3", s.key)
		}
		passes := make([]int, len(s.value))
		for i := range passes {
			passes[i] = i
		}
		if err := stacks.add(name, layer, passes, plain(s.value)); err != nil {
			return nil, in.files[0].damaged(place{}, "steps: %v", err)
		}
	}
	ids, tables, err := stacks.tables("pass")
	if err != nil {
		return nil, in.files[0].damaged(place{}, "steps: %v", err)
	}
	shape, err := c.shape(in, len(ids), len(tables[0].Counts[0]), ids)
	if err != nil {
		return nil, err
	}
	h, err := in.newHistogram(shape, len(tables))
	if err != nil {
		return nil, err
	}
	h.Unit, h.Tables = unitTokens, tables
	return h, nil
}

// withoutPairs leaves out tables that count pairs of experts.
func withoutPairs(in *input, all entries[elements[tally]]) (tables entries[elements[tally]]) {
	pairs := 0
	for _, t := range all {
		isPairs := false
		for _, row := range t.value {
			isPairs = isPairs || row.pairs
		}
		if isPairs {
			pairs++
			continue
		}
		tables = append(tables, t)
	}
	if pairs > 0 {
		in.note("%d tables count pairs of experts in two layers; they were left out.", pairs)
	}
	return tables
}

// talliedHistogram makes a histogram of tables that leave unused experts out.
func (in *input) talliedHistogram(s layout.Shape, tables entries[elements[tally]]) (*trace.Histogram, error) {
	h, err := in.newHistogram(s, len(tables))
	if err != nil {
		return nil, err
	}
	ids := make([]int, s.Layers)
	for l := range ids {
		ids[l] = s.LayerID(l)
	}
	for _, t := range tables {
		if len(t.value) != s.Layers {
			return nil, in.files[0].damaged(place{}, "table %.80q has %d rows, want one for each of %d layers", t.key, len(t.value), s.Layers)
		}
		table, err := in.table(t.key, ids, t.value, s.Experts)
		if err != nil {
			return nil, err
		}
		h.Tables = append(h.Tables, table)
	}
	h.Unit = unitTokens
	return h, nil
}

// subjectMean is what ajtejankar/mixtral-vis-moe published of a subject.
type subjectMean struct {
	Questions int                `json:"questions"`
	Mean      elements[countRow] `json:"mean_fraction"`
}

func subjectTables(in *input, subjects entries[subjectMean]) (tables []trace.Counts) {
	questions := 0
	for _, s := range subjects {
		questions += s.value.Questions
		tables = append(tables, trace.Counts{Label: s.key, Counts: plain(s.value.Mean)})
	}
	if questions > 0 {
		in.note("Each table is a mean over a subject's questions (%d in all), each question with the same weight.", questions)
	}
	return tables
}

// formSubjects is that publication as one object: a subject a key.
const formSubjects = "mixtral-vis-subjects"

func sniffSubjects(p *peek) bool {
	return p.hasPath("*", "mean_fraction") && p.hasPath("*", "questions")
}

func openSubjects(in *input) (*content, error) {
	f := in.files[0]
	var subjects entries[subjectMean]
	if err := f.decodeJSON(&subjects); err != nil {
		return nil, err
	}
	if len(subjects) == 0 || len(subjects[0].value.Mean) == 0 {
		return nil, f.damaged(place{}, "it holds no mean_fraction")
	}
	tables := subjectTables(in, subjects)
	rows := tables[0].Counts
	shape, err := in.counted(layout.Shape{Layers: len(rows), Experts: len(rows[0])})
	if err != nil {
		return nil, err
	}
	h, err := in.newHistogram(shape, len(tables))
	if err != nil {
		return nil, err
	}
	h.Unit, h.Source, h.Tables = unitShare, in.sourceText(formSubjects), tables
	return &content{histogram: h}, nil
}
