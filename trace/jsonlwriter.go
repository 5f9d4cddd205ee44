package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

// JSONLWriter writes the JSON lines form. It is several times larger than the
// binary form, but anything can read it. For one goroutine at a time.
//
// The header line has no word for Header.Weights and Header.Tokens: a reader
// takes them from the first token, so a trace without tokens loses them.
type JSONLWriter struct {
	dst    *bufio.Writer
	header Header
	check  checker
	line   []byte
	tokens int64
	closed bool
	err    error
}

// NewJSONLWriter writes the header line into its buffer (64 KiB). Close does
// not close w.
func NewJSONLWriter(w io.Writer, h Header) (*JSONLWriter, error) {
	if err := h.Validate(); err != nil {
		return nil, err
	}
	j := &JSONLWriter{dst: bufio.NewWriterSize(w, 64<<10), header: h}
	j.check = newChecker(&j.header)
	head := jsonHeader{
		Model: h.Model, Layers: h.Shape.Layers, Experts: h.Shape.Experts, TopK: h.Shape.TopK,
		LayerIDs: h.Shape.LayerIDs, Source: h.Source, Note: h.Note,
		Ranked: h.Ranked.pointer(), Sequences: h.Sequences.pointer(),
	}
	if h.IDs != IDsUnknown {
		head.IDs = h.IDs.String()
	}
	if h.Phase != PhaseUnknown {
		head.Phase = h.Phase.String()
	}
	enc := json.NewEncoder(j.dst)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&head); err != nil {
		return nil, fmt.Errorf("trace: write header: %w", err)
	}
	return j, nil
}

// Append writes one line; see Sink.
func (j *JSONLWriter) Append(a *Activation) error {
	if j.closed {
		return fmt.Errorf("trace: append: %w", ErrClosed)
	}
	if j.err != nil {
		return j.err
	}
	if err := j.check.check(a); err != nil {
		return fmt.Errorf("trace: %w: token %d: %w", ErrActivation, j.tokens, err)
	}
	j.line = j.appendLine(j.line[:0], a)
	if len(j.line) > MaxLine {
		return fmt.Errorf("trace: %w: token %d: its line would have %d bytes, at most %d can be read back (use the binary form)",
			ErrActivation, j.tokens, len(j.line), MaxLine)
	}
	if _, err := j.dst.Write(j.line); err != nil {
		j.err = fmt.Errorf("trace: write token %d: %w", j.tokens, err)
		return j.err
	}
	j.tokens++
	return nil
}

func (j *JSONLWriter) appendLine(b []byte, a *Activation) []byte {
	b = strconv.AppendInt(append(b, `{"seq":`...), a.Seq, 10)
	b = strconv.AppendInt(append(b, `,"pos":`...), a.Pos, 10)
	phase := a.Phase
	if phase == PhaseUnknown {
		phase = j.header.Phase
	}
	if phase != PhaseUnknown {
		b = append(append(append(b, `,"phase":"`...), phase.String()...), '"')
	}
	b = append(b, `,"experts":[`...)
	for l := range j.header.Shape.Layers {
		ids, _ := a.Row(l, j.header.Shape.TopK)
		b = appendSeparator(b, l)
		b = append(b, '[')
		for i, id := range ids {
			b = strconv.AppendInt(appendSeparator(b, i), int64(id), 10)
		}
		b = append(b, ']')
	}
	b = append(b, ']')
	if j.header.Weights {
		b = j.appendWeights(b, a)
	}
	if j.header.Tokens {
		b = strconv.AppendInt(append(b, `,"token":`...), int64(a.Token), 10)
	}
	return append(b, '}', '\n')
}

func (j *JSONLWriter) appendWeights(b []byte, a *Activation) []byte {
	b = append(b, `,"weights":[`...)
	for l := range j.header.Shape.Layers {
		_, weights := a.Row(l, j.header.Shape.TopK)
		b = append(appendSeparator(b, l), '[')
		for i, w := range weights {
			// The shortest text that reads back as the same float32.
			b = strconv.AppendFloat(appendSeparator(b, i), float64(w), 'g', -1, 32)
		}
		b = append(b, ']')
	}
	return append(b, ']')
}

func appendSeparator(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

// Flush hands the buffered lines to the underlying writer.
func (j *JSONLWriter) Flush() error {
	if j.err == nil {
		if err := j.dst.Flush(); err != nil {
			j.err = fmt.Errorf("trace: write: %w", err)
		}
	}
	return j.err
}

// Close flushes. A JSON lines trace has no end mark.
func (j *JSONLWriter) Close() error {
	j.closed = true
	return j.Flush()
}
