package trace

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"outrider/internal/testfiles"
	"outrider/layout"
)

// readTrace reads up to limit tokens of a file.
func readTrace(tb testing.TB, path string, limit int) *Trace {
	tb.Helper()
	f, err := OpenFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	tr, err := ReadAll(f, limit)
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// derived is an empty trace of some layers of another's shape, or of all.
func derived(tb testing.TB, tr *Trace, layers ...int) *Trace {
	tb.Helper()
	h := tr.Header
	h.Weights, h.Tokens = false, false
	if layers != nil {
		h.Shape.Layers, h.Shape.LayerIDs = len(layers), nil
	}
	d, err := NewTrace(h)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func appendTo(tb testing.TB, tr *Trace, a *Activation) {
	tb.Helper()
	if err := tr.Append(a); err != nil {
		tb.Fatal(err)
	}
}

// woven is a trace's sequences, stride of them at a time, row by row in turn and
// all under one number, as a recorder of a batch that knows no sequences makes
// it. It ends when no sequence is left to take an ended one's place.
func woven(tb testing.TB, tr *Trace, stride int) *Trace {
	tb.Helper()
	rowsOf := map[int64][]int{}
	var waiting []int64
	for i, s := range tr.Seqs {
		if rowsOf[s] == nil {
			waiting = append(waiting, s)
		}
		rowsOf[s] = append(rowsOf[s], i)
	}
	w := derived(tb, tr)
	running := make([][]int, stride)
	var a Activation
	for i := 0; ; i = (i + 1) % stride {
		if len(running[i]) == 0 {
			if len(waiting) == 0 {
				return w
			}
			running[i], waiting = rowsOf[waiting[0]], waiting[1:]
		}
		tr.At(running[i][0], &a)
		running[i] = running[i][1:]
		a.Seq, a.Pos = 0, int64(w.Len())
		appendTo(tb, w, &a)
	}
}

// delayed is a trace in which some layers' choices come some rows late, or
// early if that is below 0, within each sequence.
func delayed(tb testing.TB, tr *Trace, by int, layers ...int) *Trace {
	tb.Helper()
	rowsOf := map[int64][]int{}
	place := make([]int, tr.Len())
	for i, s := range tr.Seqs {
		place[i] = len(rowsOf[s])
		rowsOf[s] = append(rowsOf[s], i)
	}
	d, k := derived(tb, tr), tr.Header.Shape.TopK
	var a, other Activation
	for i := range tr.Len() {
		seq := rowsOf[tr.Seqs[i]]
		from := place[i] - by
		if from < 0 || from >= len(seq) {
			continue
		}
		tr.At(i, &a)
		tr.At(seq[from], &other)
		a.Experts = append([]int32(nil), a.Experts...)
		for _, l := range layers {
			copy(a.Experts[l*k:(l+1)*k], other.Experts[l*k:])
		}
		appendTo(tb, d, &a)
	}
	return d
}

// only is a trace of some layers.
func only(tb testing.TB, tr *Trace, layers ...int) *Trace {
	tb.Helper()
	d, k := derived(tb, tr, layers...), tr.Header.Shape.TopK
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		var ids []int32
		for _, l := range layers {
			ids = append(ids, a.Experts[l*k:(l+1)*k]...)
		}
		a.Experts = ids
		appendTo(tb, d, &a)
	}
	return d
}

// cut is up to n tokens from one on.
func cut(tb testing.TB, tr *Trace, from, n int) *Trace {
	tb.Helper()
	d := derived(tb, tr)
	var a Activation
	for i := from; i < min(from+n, tr.Len()); i++ {
		tr.At(i, &a)
		appendTo(tb, d, &a)
	}
	return d
}

// Rows of the Qwen logs before the prefill of the batch, and before its decode.
const (
	qwenWarmUp  = 8192 + 256
	qwenPrefill = 65 + 1406
)

// qwenLogs reads the vLLM logger's files of five layers, of which layer 0 is
// known to be one row late, in file order and with the warm-up rows.
func qwenLogs(tb testing.TB) *Trace {
	tb.Helper()
	dir := testfiles.Shared(tb, "traces/raw/qwen1.5-moe-vllm-logger")
	layers := []int{0, 8, 12, 18, 23}
	tr, err := NewTrace(Header{Shape: layout.Shape{Layers: 5, Experts: 60, TopK: 4, LayerIDs: layers}})
	if err != nil {
		tb.Fatal(err)
	}
	var ids [][]int32
	for _, layer := range layers {
		for i, row := range qwenLog(tb, filepath.Join(dir, fmt.Sprintf("moe_layer%d.jsonl.gz", layer))) {
			if i == len(ids) {
				ids = append(ids, nil)
			}
			ids[i] = append(ids[i], row...)
		}
	}
	for i := range ids {
		appendTo(tb, tr, &Activation{Pos: int64(i), Token: -1, Experts: ids[i]})
	}
	return tr
}

func qwenLog(tb testing.TB, path string) (ids [][]int32) {
	tb.Helper()
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	lines := bufio.NewScanner(z)
	for lines.Scan() {
		var row struct {
			Type string  `json:"type"`
			IDs  []int32 `json:"topk_ids"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			tb.Fatal(err)
		}
		if row.Type == "route" {
			ids = append(ids, row.IDs)
		}
	}
	if err := lines.Err(); err != nil {
		tb.Fatal(err)
	}
	return ids
}
