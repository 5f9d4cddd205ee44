package safetensors

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"outrider/layout"
)

// index is a *.safetensors.index.json: which file each tensor lies in.
type index struct {
	path  string
	files []string       // in order
	of    map[string]int // a tensor's file, counting files
	total int64          // bytes of all tensors; -1 if it does not say
}

// readIndex reads an index. The names of its files are plain: no way leads out
// of the folder.
func readIndex(fsys layout.FS, path string) (*index, error) {
	text, err := readWhole(fsys, path, ErrIndex, maxHeaderBytes)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(text) {
		return nil, wrong(ErrIndex, path, 0, "it is not UTF-8")
	}
	r := indexReader{index: &index{path: path, total: -1}, number: map[string]int{}}
	r.scanner = scanner{text: text, kind: "the index", wrong: func(at int, reason string) error {
		return wrong(ErrIndex, path, int64(at), "%s", reason)
	}}
	if err := r.object(r.member); err != nil {
		return nil, err
	}
	if err := r.end(); err != nil {
		return nil, err
	}
	if r.of == nil {
		return nil, wrong(ErrIndex, path, -1, "it has no weight_map")
	}
	r.sortFiles()
	return r.index, nil
}

// indexReader reads an index whose files are numbered as they come.
type indexReader struct {
	*index
	scanner
	number map[string]int
}

func (r *indexReader) member(key []byte) error {
	switch string(key) {
	case "weight_map":
		if r.of != nil {
			return r.fail("has %q twice", key)
		}
		r.of = make(map[string]int, min(bytes.Count(r.text, []byte(suffix+`"`)), maxTensors))
		return r.object(r.weight)
	case "metadata":
		value, err := r.skip()
		r.total = totalSize(value)
		return err
	}
	_, err := r.skip()
	return err
}

// weight reads the file of one tensor.
func (r *indexReader) weight(key []byte) error {
	name := string(key)
	file, err := r.str(strconv.Quote(name))
	if err != nil {
		return err
	}
	if _, twice := r.of[name]; twice {
		return r.fail("has %q twice", name)
	}
	if len(r.of) == maxTensors {
		return r.fail("has more than %d tensors", maxTensors)
	}
	no, known := r.number[string(file)]
	if !known {
		if !isPlain(string(file)) {
			return r.fail("says that %q lies in %q, want the plain name of a .safetensors file beside the index", name, file)
		}
		no = len(r.number)
		r.number[string(file)] = no
	}
	r.of[name] = no
	return nil
}

// sortFiles puts the files in order and numbers them anew.
func (r *indexReader) sortFiles() {
	r.files = slices.SortedFunc(maps.Keys(r.number), inOrder)
	to := make([]int, len(r.files))
	for i, file := range r.files {
		to[r.number[file]] = i
	}
	for name, no := range r.of {
		r.of[name] = to[no]
	}
}

// isPlain reports whether a name is one of a file in the same folder, on every system.
func isPlain(name string) bool {
	return strings.HasSuffix(name, suffix) && len(name) > len(suffix) && len(name) <= 255 && !strings.ContainsAny(name, "/\\:\x00")
}

// totalSize is what the metadata says of the bytes of all tensors, -1 if that is
// no whole number. Some writers make it a fraction or a text.
func totalSize(metadata json.RawMessage) int64 {
	var m struct {
		Total json.RawMessage `json:"total_size"`
	}
	if json.Unmarshal(metadata, &m) != nil {
		return -1
	}
	x, err := strconv.ParseFloat(strings.Trim(string(m.Total), `"`), 64)
	if err != nil || x != math.Trunc(x) || x < 0 || x > 1<<53 {
		return -1
	}
	return int64(x)
}
