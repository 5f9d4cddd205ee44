package importer

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"outrider/layout"
	"outrider/trace"
)

// MoE-Beyond (github.com/ngavhane/moe-beyond) writes one CSV file a prompt, of
// one forward pass over it; all tokens of the first MoE layer come first. The
// collected form has several prompts in one file, told by their names.
var (
	beyondHeader    = []string{"Layer ID", "Batch Number", "Token", "Activated Expert IDs"}
	collectedHeader = []string{"Prompt File", "Layer ID", "Batch Number", "Activated Expert IDs"}
)

// maxBatchNumber bounds the numbering of sequences.
const maxBatchNumber = 1 << 16

func sniffMoEBeyond(p *peek) bool {
	line, whole := p.line()
	return whole && (string(line) == strings.Join(beyondHeader, ",") || string(line) == strings.Join(collectedHeader, ","))
}

// beyondRow is one row of either form. Its ids are valid until the next row.
type beyondRow struct {
	prompt string // the file of the prompt in the collected form
	layer  int
	batch  int
	ids    []int32
}

func openMoEBeyond(in *input) (*content, error) {
	s := &survey{}
	err := eachBeyondPrompt(in, func(f *file, at place, r *beyondRow, first bool) error {
		if first {
			s.groups++
		}
		if s.groups > 1 {
			return errEnough
		}
		if err := s.row(r.layer, len(r.ids), nil); err != nil {
			return f.damaged(at, "%v", err)
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	h, index, err := s.header(in, "moe-beyond", layout.Shape{}, err)
	if err != nil {
		return nil, err
	}
	h.Weights, h.Phase, h.IDs, h.Sequences, h.Ranked = false, trace.Prefill, trace.IDsLogical, trace.Yes, trace.Unknown
	return &content{header: h, emit: func(out emitter) error { return emitBeyond(in, newPass(h, index, out)) }}, nil
}

// emitBeyond tells the tokens prompt by prompt.
func emitBeyond(in *input, p *pass) error {
	var (
		last     beyondRow // of which the ids are not kept
		lastFile *file
		lastAt   place
		base     int64 // the number of the prompt's first sequence
		most     int   // the largest batch number of the prompt
		pos      int64
	)
	err := eachBeyondPrompt(in, func(f *file, at place, r *beyondRow, first bool) error {
		if first && p.holds() {
			if err := p.finish(lastFile, lastAt); err != nil {
				return err
			}
			base, most = base+int64(most)+1, 0
		}
		switch {
		case first:
			pos = 0
		case r.layer < last.layer || (r.layer == last.layer && r.batch < last.batch):
			return f.damaged(at, "layer %d, batch %d comes after layer %d, batch %d of the same prompt", r.layer, r.batch, last.layer, last.batch)
		case r.layer != last.layer || r.batch != last.batch:
			pos = 0
		}
		k := tokenKey{seq: base + int64(r.batch), pos: pos, token: -1, phase: trace.Prefill}
		if err := p.row(r.layer, k, r.ids, nil); err != nil {
			return f.damaged(at, "%v", err)
		}
		pos++
		last, lastFile, lastAt, most = *r, f, at, max(most, r.batch)
		return nil
	})
	if err == nil && p.holds() {
		return p.finish(lastFile, lastAt)
	}
	return p.broken(lastFile, err)
}

// eachBeyondPrompt calls fn with each row of all files; first marks the first
// row of a prompt.
func eachBeyondPrompt(in *input, fn func(f *file, at place, r *beyondRow, first bool) error) error {
	for _, f := range in.files {
		rows, prompt := 0, ""
		err := eachBeyondRow(f, func(at place, r *beyondRow) error {
			first := rows == 0 || r.prompt != prompt
			rows, prompt = rows+1, r.prompt
			return fn(f, at, r, first)
		})
		if err != nil {
			return err
		}
		if rows == 0 {
			in.note("%s holds no rows and was left out.", f.name())
		}
	}
	return nil
}

// eachBeyondRow reads one file.
func eachBeyondRow(f *file, fn func(at place, r *beyondRow) error) error {
	src, err := f.open()
	if err != nil {
		return err
	}
	defer src.Close() // nothing was written
	in := &metered{src: src}
	rows := csv.NewReader(in)
	rows.ReuseRecord, rows.FieldsPerRecord = true, len(beyondHeader)
	read := func() ([]string, error) {
		in.left = maxLine
		return rows.Read()
	}
	header, err := read()
	if err != nil {
		return csvFailed(f, err)
	}
	header[0] = strings.TrimPrefix(header[0], "\xef\xbb\xbf")
	collected := strings.Join(header, ",") == strings.Join(collectedHeader, ",")
	if !collected && strings.Join(header, ",") != strings.Join(beyondHeader, ",") {
		return f.damaged(place{line: 1}, "the header is %.80q, want %q or %q", strings.Join(header, ","),
			strings.Join(beyondHeader, ","), strings.Join(collectedHeader, ","))
	}
	var r beyondRow
	for {
		fields, err := read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return csvFailed(f, err)
		}
		line, _ := rows.FieldPos(0)
		at := place{line: line}
		if err := r.parse(fields, collected); err != nil {
			return f.damaged(at, "%v", err)
		}
		if err := fn(at, &r); err != nil {
			return err
		}
	}
}

// parse reads a row's fields.
func (r *beyondRow) parse(fields []string, collected bool) error {
	layer, batch := fields[0], fields[1]
	if collected {
		layer, batch = fields[1], fields[2]
		if r.prompt != fields[0] {
			r.prompt = strings.Clone(fields[0]) // not the whole record's memory
		}
	}
	var err error
	if r.layer, err = strconv.Atoi(layer); err != nil || r.layer < 0 {
		return fmt.Errorf("layer id %.20q is no number of 0 or more", layer)
	}
	if r.batch, err = strconv.Atoi(batch); err != nil || r.batch < 0 || r.batch >= maxBatchNumber {
		return fmt.Errorf("batch number %.20q is no number of 0 to %d", batch, maxBatchNumber-1)
	}
	return r.parseIDs(fields[3])
}

// parseIDs reads "[8, 26, 56]" or "8 26 56".
func (r *beyondRow) parseIDs(text string) error {
	r.ids = r.ids[:0]
	bare := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "["), "]")
	for word := range strings.FieldsFuncSeq(bare, func(c rune) bool { return c == ',' || c == ' ' }) {
		id, err := strconv.ParseInt(word, 10, 32)
		if err != nil {
			return fmt.Errorf("%.20q in the list %.60q is no expert id", word, text)
		}
		r.ids = append(r.ids, int32(id))
	}
	return nil
}

// csvFailed says what is wrong with the CSV, and where.
func csvFailed(f *file, err error) error {
	var syntax *csv.ParseError
	switch {
	case errors.Is(err, errTooLong):
		return f.damaged(place{}, "a row is longer than %d bytes: is a quote left open?", maxLine)
	case errors.As(err, &syntax):
		return f.damaged(place{line: syntax.Line}, "%v", syntax.Err)
	}
	return endOf(f, place{}, err, "its rows")
}
