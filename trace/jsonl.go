package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// MaxLine is the longest line of a JSON lines trace that is read, in bytes.
const MaxLine = 16 << 20

// jsonHeader is line 1. Keys it does not name are passed over.
type jsonHeader struct {
	Kind     string `json:"kind,omitempty"` // "histogram": counts without tokens, not ours
	Model    string `json:"model"`
	Layers   int    `json:"layers"`
	Experts  int    `json:"experts"`
	TopK     int    `json:"top_k"`
	LayerIDs []int  `json:"layer_ids,omitempty"`
	Phase    string `json:"phase,omitempty"`
	Source   string `json:"source,omitempty"`
	Note     string `json:"note,omitempty"`

	IDs       string `json:"id_space,omitempty"`
	Ranked    *bool  `json:"ranked,omitempty"`
	Sequences *bool  `json:"sequenced,omitempty"`
}

// jsonLine is any other line. The rows stay text, because encoding/json would
// leave what an earlier line held wherever this one says null.
type jsonLine struct {
	Seq     int64           `json:"seq"`
	Pos     int64           `json:"pos"`
	Phase   json.RawMessage `json:"phase"`
	Token   int64           `json:"token"`
	Experts json.RawMessage `json:"experts"`
	Weights json.RawMessage `json:"weights"`
}

const noToken = math.MinInt64 // jsonLine.Token of a line without one

// JSONLReader reads the JSON lines form (see the package comment). For one
// goroutine at a time; it allocates nothing that grows with the trace.
type JSONLReader struct {
	src    *bufio.Reader
	header Header
	check  checker
	line   []byte
	number int   // of the line at hand, from 1
	offset int64 // of its first byte
	next   int64 // of the byte after it
	tokens int64
	whole  bool // the line at hand ended in a newline
	parsed jsonLine
	counts []int // ids in each layer's row
	ahead  bool  // parsed holds a token not yet delivered
	err    error
}

// NewJSONLReader reads the header line, and the first token's line to see what
// tokens carry; it waits until both are there. A first line that is no header
// object is ErrNotTrace, a header with impossible values a *CorruptError. It
// does not close r.
func NewJSONLReader(r io.Reader) (*JSONLReader, error) {
	j := &JSONLReader{src: bufio.NewReaderSize(r, 64<<10)}
	if err := j.readHeader(); err != nil {
		return nil, err
	}
	j.check = newChecker(&j.header)
	j.counts = make([]int, j.header.Shape.Layers)
	switch err := j.readToken(); {
	case errors.Is(err, io.EOF):
		j.err = io.EOF
	case err != nil:
		j.err = err
	default:
		j.ahead = true
		j.header.Tokens = j.parsed.Token != noToken
		j.header.Weights = present(j.parsed.Weights)
	}
	return j, nil
}

func (j *JSONLReader) readHeader() error {
	if err := j.readLine(); errors.Is(err, io.EOF) {
		return fmt.Errorf("trace: %w: the file is empty, want a header object on line 1", ErrNotTrace)
	} else if err != nil {
		return err
	}
	var h jsonHeader
	if err := json.Unmarshal(bytes.TrimPrefix(j.line, []byte("\xef\xbb\xbf")), &h); err != nil {
		return fmt.Errorf("trace: %w: line %d is no header object: %w", ErrNotTrace, j.number, err)
	}
	if h.Layers == 0 || h.Experts == 0 || h.TopK == 0 {
		return fmt.Errorf("trace: %w: the object on line %d describes no trace (kind %q, layers %d, experts %d, top_k %d)",
			ErrNotTrace, j.number, h.Kind, h.Layers, h.Experts, h.TopK)
	}
	j.header = Header{Model: h.Model, Source: h.Source, Note: h.Note}
	j.header.Shape.Layers, j.header.Shape.Experts, j.header.Shape.TopK = h.Layers, h.Experts, h.TopK
	if len(h.LayerIDs) > 0 {
		j.header.Shape.LayerIDs = h.LayerIDs
	}
	// Words such as "prefill+decode" say that tokens differ; their lines tell.
	j.header.Phase, _ = parsePhase(h.Phase)
	j.header.Ranked, j.header.Sequences = factAt(h.Ranked), factAt(h.Sequences)
	var ok bool
	if j.header.IDs, ok = parseIDsWord(h.IDs); !ok {
		return j.damaged("id_space is %q, want \"logical\", \"physical\" or \"unknown\"", h.IDs)
	}
	if err := j.header.validate(); err != nil {
		return j.damaged("%v", err)
	}
	return nil
}

// Header describes the trace. Weights and Tokens tell what the first token
// carries; in a trace without tokens they are false.
func (j *JSONLReader) Header() Header { return j.header }

// Next reads the next token; see Stream. A last line that has no newline and is
// no whole object is a *TornError.
func (j *JSONLReader) Next(a *Activation) error {
	if j.err != nil {
		return j.err
	}
	if !j.ahead {
		if err := j.readToken(); err != nil {
			j.err = err
			return err
		}
	}
	j.ahead = false
	if err := j.fill(a); err != nil {
		j.err = j.damaged("%v", err)
		return j.err
	}
	j.tokens++
	return nil
}

func (j *JSONLReader) damaged(format string, args ...any) error {
	return &CorruptError{Line: j.number, Offset: j.offset, Reason: fmt.Sprintf(format, args...)}
}

// readToken parses the next line that is not blank.
func (j *JSONLReader) readToken() error {
	if err := j.readLine(); err != nil {
		return err
	}
	p := &j.parsed
	p.Seq, p.Pos, p.Token = -1, -1, noToken
	p.Phase, p.Experts, p.Weights = p.Phase[:0], p.Experts[:0], p.Weights[:0]
	if err := json.Unmarshal(j.line, p); err != nil {
		if !j.whole && !json.Valid(j.line) {
			return &TornError{Tokens: j.tokens}
		}
		return j.damaged("%v", err)
	}
	return nil
}

// fill turns the parsed line into an activation and checks it.
func (j *JSONLReader) fill(a *Activation) error {
	p, h := &j.parsed, &j.header
	if p.Seq < 0 || p.Pos < 0 {
		return errors.New(`the line needs a "seq" and a "pos" of 0 or more`)
	}
	a.Seq, a.Pos, a.Phase, a.Token = p.Seq, p.Pos, h.Phase, -1
	if present(p.Phase) {
		var ok bool
		if a.Phase, ok = parsePhase(string(bytes.Trim(p.Phase, `"`))); !ok {
			return fmt.Errorf("phase is %s, want \"prefill\", \"decode\" or \"unknown\"", p.Phase)
		}
		if a.Phase == PhaseUnknown {
			a.Phase = h.Phase
		}
	}
	switch {
	case p.Token == noToken:
	case !h.Tokens:
		return errors.New("the line has a token id, but the first token has none (give it -1 where it is not known)")
	case p.Token < -1 || p.Token > math.MaxInt32:
		return fmt.Errorf("token id %d is outside -1 to %d", p.Token, math.MaxInt32)
	default:
		a.Token = int32(p.Token)
	}
	a.Experts = resized(a.Experts, h.ids())
	if err := parseIDs(p.Experts, h.Shape.TopK, j.counts, a.Experts); err != nil {
		return fmt.Errorf("experts: %w", err)
	}
	if present(p.Weights) != h.Weights {
		return errors.New("some lines have weights and some have none, want all or none")
	}
	a.Weights = a.Weights[:0]
	if h.Weights {
		a.Weights = resized(a.Weights, h.ids())
		if err := parseWeights(p.Weights, h.Shape.TopK, j.counts, a.Weights); err != nil {
			return fmt.Errorf("weights: %w", err)
		}
	}
	return j.check.check(a)
}

// readLine reads the next line that is not blank into j.line, which stays
// valid until the next call.
func (j *JSONLReader) readLine() error {
	for {
		j.line, j.offset, j.whole = j.line[:0], j.next, false
		j.number++
		err := j.appendLine()
		if err != nil && !(errors.Is(err, io.EOF) && len(j.line) > 0) {
			return sourceError(err, j.tokens)
		}
		if len(bytes.TrimSpace(j.line)) > 0 {
			return nil
		}
	}
}

func (j *JSONLReader) appendLine() error {
	for {
		part, err := j.src.ReadSlice('\n')
		j.next += int64(len(part))
		if len(j.line)+len(part) > MaxLine {
			return j.damaged("the line is longer than %d bytes", MaxLine)
		}
		j.line = append(j.line, part...)
		switch {
		case err == nil:
			j.whole = true
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return err
		}
	}
}

func present(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

func parsePhase(word string) (Phase, bool) {
	switch word {
	case "prefill":
		return Prefill, true
	case "decode":
		return Decode, true
	}
	return PhaseUnknown, word == "unknown" || word == ""
}
