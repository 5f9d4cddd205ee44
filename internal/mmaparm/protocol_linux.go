package mmaparm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// request is one line to the child; exactly one field is set.
type request struct {
	Open  *openRequest  `json:"open,omitempty"`
	Place *placeRequest `json:"place,omitempty"`
	Play  []Use         `json:"play,omitempty"`
}

// openRequest comes first, and once.
type openRequest struct {
	Threads int        `json:"threads"`
	Files   []openFile `json:"files"`
}

type openFile struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// placeRequest adds experts to a layer, in the order of their index.
type placeRequest struct {
	Layer   int        `json:"layer"`
	Experts [][]extent `json:"experts"`
}

// extent is a range of a file: [file, offset, bytes].
type extent [3]int64

// reply is one line back.
type reply struct {
	Result *Result `json:"result,omitempty"` // of a play
	Error  string  `json:"error,omitempty"`
}

// Bounds of a line. A request stays under maxLine: a number has at most 20
// digits, and a message about batchNumbers of them besides its paths: few, so
// that the child needs little memory of its own.
const (
	maxLine      = 4 << 20
	batchNumbers = 1 << 14
	maxFiles     = 4096
	useNumbers   = 8 // what a use counts for besides its experts
)

var errLongLine = fmt.Errorf("mmaparm: a line of more than %d bytes", maxLine)

// lines reads messages, each a line, of bounded length.
type lines struct{ r *bufio.Reader }

func newLines(r io.Reader) *lines { return &lines{bufio.NewReaderSize(r, 64<<10)} }

// next decodes the next line into m. io.EOF means that there is none; a line
// that is cut off is io.ErrUnexpectedEOF.
func (l *lines) next(m any) error {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return errLongLine
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return decodeLine(line, m)
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return io.ErrUnexpectedEOF
		default:
			return err
		}
	}
}

func decodeLine(line []byte, m any) error {
	d := json.NewDecoder(strings.NewReader(string(line)))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		// Not wrapped: an empty or cut line must not look like the end of input.
		return fmt.Errorf("mmaparm: message %.60q: %v", line, err)
	}
	if d.More() {
		return fmt.Errorf("mmaparm: message %.60q: more than one object", line)
	}
	return nil
}

// send writes a message as one line.
func send(w io.Writer, m any) error {
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("mmaparm: %w", err)
	}
	if len(b) >= maxLine {
		return errLongLine
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// batches cuts uses so that each part fits a line; a part may be a single use
// that is too long, which send refuses.
func batches(uses []Use, tell func([]Use) error) error {
	from, numbers := 0, 0
	for i, u := range uses {
		n := len(u.Experts) + useNumbers
		if i > from && numbers+n > batchNumbers {
			if err := tell(uses[from:i]); err != nil {
				return err
			}
			from, numbers = i, 0
		}
		numbers += n
	}
	if from < len(uses) {
		return tell(uses[from:])
	}
	return nil
}
