package importer

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"

	"outrider/layout"
	"outrider/trace"
)

// formSwitchCSV is what sacs-epfl/moe-inference logs for Switch Transformers: a
// file for each MoE layer, moe_l<layer>.csv of the encoder and moe_l<layer>_decode.csv
// of the decoder, with a row for each forward pass.
const formSwitchCSV = "moe-inference-csv"

var (
	switchTitle = []string{"iteration", "latency (ms)", "total number of bytes sent", "total number of bytes recv", "tokens per expert"}
	switchName  = regexp.MustCompile(`(?:^|_)moe_l(\d{1,6})(_decode)?\.csv$`)
)

func sniffSwitchCSV(p *peek) bool {
	line, whole := p.line()
	fields, err := csv.NewReader(bytes.NewReader(line)).Read()
	return whole && err == nil && slices.Equal(fields, switchTitle)
}

// switchLayer is one file.
type switchLayer struct {
	file   *file
	stack  string
	layer  int
	passes []int
	rows   [][]float64
}

func openSwitchCSV(in *input) (*content, error) {
	byExperts := map[int][]*switchLayer{}
	counts := 0
	for _, f := range in.files {
		l, err := readSwitch(f, &counts)
		if err != nil {
			return nil, err
		}
		experts := len(l.rows[0])
		byExperts[experts] = append(byExperts[experts], l)
	}
	layers, err := switchModel(in, byExperts)
	if err != nil {
		return nil, err
	}
	gathered := newStacks()
	for _, l := range layers {
		if err := gathered.add(l.stack, l.layer, l.passes, l.rows); err != nil {
			return nil, l.file.damaged(place{}, "%v", err)
		}
	}
	ids, tables, err := gathered.tables("iteration")
	if err != nil {
		return nil, in.files[0].damaged(place{}, "%v", err)
	}
	shape, err := in.counted(layout.Shape{Layers: len(ids), Experts: len(layers[0].rows[0]), LayerIDs: blockNumbers(ids)})
	if err != nil {
		return nil, err
	}
	h, err := in.newHistogram(shape, len(tables))
	if err != nil {
		return nil, err
	}
	h.Unit, h.Source, h.Tables = unitTokens, in.sourceText(formSwitchCSV), tables
	h.Note = "a table for each forward pass, in order"
	return &content{histogram: h}, nil
}

// switchModel takes the files of one model: those with as many experts as
// were asked for, or all.
func switchModel(in *input, byExperts map[int][]*switchLayer) ([]*switchLayer, error) {
	sizes := slices.Sorted(maps.Keys(byExperts))
	if len(sizes) == 1 {
		return byExperts[sizes[0]], nil
	}
	layers := byExperts[in.opts.Experts]
	if layers == nil {
		return nil, fmt.Errorf("%s: %w: the files are of models with %v experts a layer: name those of one, or choose with --experts", in.files[0].path, ErrNeedShape, sizes)
	}
	in.note("%d of %d files are of models with another number of experts than %d; they were left out.", len(in.files)-len(layers), len(in.files), in.opts.Experts)
	return layers, nil
}

// readSwitch reads one file. Held counts what all files hold together, to bound
// it.
func readSwitch(f *file, held *int) (*switchLayer, error) {
	l := &switchLayer{file: f, stack: "encoder"}
	name, ok := switchName.FindStringSubmatch(f.name()), false
	if name != nil {
		l.layer, ok = digits([]byte(name[1]))
	}
	if !ok {
		return nil, f.damaged(place{}, "the name tells no layer, want moe_l<layer>.csv or moe_l<layer>_decode.csv")
	}
	if name[2] != "" {
		l.stack = "decoder"
	}
	r, err := f.open()
	if err != nil {
		return nil, err
	}
	defer r.Close() // nothing was written
	if err := l.read(r, held); err != nil {
		return nil, err
	}
	if len(l.rows) == 0 {
		return nil, f.damaged(place{}, "it has no rows")
	}
	return l, nil
}

// read takes the rows. A field may be as long as the file, so that is bounded.
func (l *switchLayer) read(r io.Reader, held *int) error {
	limited := &io.LimitedReader{R: r, N: maxJSONBytes}
	rows := csv.NewReader(limited)
	rows.FieldsPerRecord, rows.ReuseRecord = len(switchTitle), true
	for first := true; ; first = false {
		fields, err := rows.Read()
		var parse *csv.ParseError
		switch {
		case limited.N == 0:
			return l.file.damaged(place{offset: maxJSONBytes}, "the file has %d bytes or more, which is more than is read of this form", maxJSONBytes)
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &parse):
			return l.file.damaged(place{line: parse.Line}, "%v", parse.Err)
		case err != nil:
			return endOf(l.file, place{}, err, "the compressed rows")
		}
		line, _ := rows.FieldPos(0)
		if first {
			if !slices.Equal(fields, switchTitle) {
				return l.file.damaged(place{line: line}, "the columns are %q, want %q", fields, switchTitle)
			}
			continue
		}
		if err := l.add(place{line: line}, fields, held); err != nil {
			return err
		}
	}
}

func (l *switchLayer) add(at place, fields []string, held *int) error {
	pass, ok := digits([]byte(fields[0]))
	if !ok {
		return l.file.damaged(at, "iteration %.20q is no number", fields[0])
	}
	var counts countRow
	if err := json.Unmarshal([]byte(fields[4]), &counts); err != nil {
		return l.file.damaged(at, "tokens per expert: %v", err)
	}
	if len(counts) == 0 || (len(l.rows) > 0 && len(counts) != len(l.rows[0])) {
		return l.file.damaged(at, "there are %d counts, want one for each expert", len(counts))
	}
	if *held += len(counts); *held > trace.MaxHistogram {
		return l.file.damaged(at, "the files hold more than %d counts", trace.MaxHistogram)
	}
	l.passes, l.rows = append(l.passes, pass), append(l.rows, counts)
	return nil
}
