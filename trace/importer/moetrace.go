package importer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// formMoETrace is what llama.cpp's moe-trace example writes (pull request 28544):
// a line "layer,expert" for each id, and nothing that separates tokens.
const formMoETrace = "llama-moe-trace"

// stridedLists is a fault of the first version: it took the choice, a view with
// gaps, for contiguous.
const stridedLists = "as the first moe-trace wrote of passes of several tokens: record with -ub 1, so that a pass is one token, or with a newer one"

var moeTraceTitle = []byte("layer,expert")

// sniffMoETrace wants nothing but two small numbers in each line, with the first
// rising in runs and falling only to where it began.
func sniffMoETrace(p *peek) bool {
	rest, lines, first, last := p.head, 0, -1, -1
	for len(rest) > 0 {
		line, tail, found := bytes.Cut(rest, []byte("\n"))
		if !found && !p.whole {
			break
		}
		rest, line = tail, bytes.TrimSpace(line)
		if len(line) == 0 || (lines == 0 && bytes.Equal(line, moeTraceTitle)) {
			continue
		}
		layer, _, ok := moeTraceLine(line)
		if !ok {
			return false
		}
		if lines == 0 {
			first = layer
		}
		if layer < last && layer != first {
			return false
		}
		last = layer
		lines++
	}
	return lines > 1
}

func moeTraceLine(line []byte) (layer, expert int, ok bool) {
	a, b, found := bytes.Cut(line, []byte(","))
	layer, okLayer := digits(bytes.TrimSpace(a))
	expert, okExpert := digits(bytes.TrimSpace(b))
	return layer, expert, found && okLayer && okExpert
}

func openMoETrace(in *input) (*content, error) {
	return openPasses(in, &passForm{name: formMoETrace, each: in.files[0].moeTrace, lists: stridedLists, phase: promptsFirst()})
}

// moeTrace reads the file id by id; what makes a row is top-k, which it lacks. A
// line without its end may be a cut number, so it is not believed.
func (f *file) moeTrace(fn func(*layerRows) error) error {
	file, err := f.open()
	if err != nil {
		return err
	}
	defer file.Close() // nothing was written
	r := layerRows{ids: make([]int32, 1)}
	for at := (place{line: 1}); ; at.line++ {
		line, err := file.ReadSlice('\n')
		switch text := bytes.TrimSpace(line); {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
			return f.damaged(at, "the line is longer than any with a layer and an expert id")
		case err != nil:
			return endOf(f, at, err, "a line")
		case len(text) == 0 || (at.line == 1 && bytes.Equal(text, moeTraceTitle)):
			continue
		default:
			layer, expert, ok := moeTraceLine(text)
			if !ok {
				return f.damaged(at, "found %.40q, want a layer and an expert id: 3,17", text)
			}
			r.at, r.layer, r.ids[0] = at, layer, int32(expert)
		}
		if err := fn(&r); err != nil {
			return err
		}
	}
}
