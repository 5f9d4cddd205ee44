package trace

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outrider/internal/testfiles"
	"outrider/layout"
)

// found is a warning without its words.
type found struct {
	kind        WarningKind
	layer, rows int
}

// suspicions runs the tests of Collect alone.
func suspicions(tb testing.TB, tr *Trace) []found {
	tb.Helper()
	s := newSuspects(tr.Header)
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		s.add(&a)
	}
	var all []found
	for _, w := range s.warnings() {
		all = append(all, found{w.Kind, w.Layer, w.Rows})
		if w.Text == "" || strings.Contains(w.Text, "%!") {
			tb.Errorf("%+v: the text is no sentence", w)
		}
	}
	return all
}

func wantSuspicions(t *testing.T, what string, tr *Trace, want ...found) {
	t.Helper()
	if got := suspicions(t, tr); !slices.Equal(got, want) {
		t.Errorf("%s, %d tokens: got %+v, want %+v", what, tr.Len(), got, want)
	}
}

// repositoryTrace is a real trace that lies in the repository.
func repositoryTrace(tb testing.TB) *Trace {
	tb.Helper()
	return readTrace(tb, filepath.Join(testfiles.Root(tb), "testdata", "traces", "tinymoe-2000.jsonl.gz"), 0)
}

func TestNoWarningForHonestTraces(t *testing.T) {
	wantSuspicions(t, "tinymoe-2000", repositoryTrace(t))
	wantSuspicions(t, "gpt-oss-20b-300", readTrace(t, filepath.Join(testfiles.Root(t), "testdata", "traces", "gpt-oss-20b-300.jsonl.gz"), 0))
	for _, uniform := range []bool{true, false} {
		for _, shape := range []layout.Shape{{Layers: 12, Experts: 64, TopK: 6}, {Layers: 1, Experts: 8, TopK: 1}, {Layers: 2, Experts: 4, TopK: 4}, {Layers: 40, Experts: 8, TopK: 2}} {
			wantSuspicions(t, fmt.Sprintf("made up, uniform %v, %+v", uniform, shape), skewed(t, shape, 3000, uniform))
		}
	}
	for _, file := range []string{
		"traces/gpt-oss-20b.jsonl.gz", "traces/deepseek-v2-lite-chat.jsonl.gz", "traces/mixtral-8x7b-instruct.jsonl.gz",
		"traces/qwen1.5-moe-a2.7b-chat-4layers-batch25.jsonl.gz", "traces/switch-base-8-encoder.jsonl.gz", "tinymoe/traces.jsonl.gz",
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			tr := readTrace(t, testfiles.Shared(t, file), 4000)
			wantSuspicions(t, file, tr)
			rng := rand.New(rand.NewPCG(5, 5))
			for _, n := range []int{500, 1000, 2000} {
				for range 2 {
					from := rng.IntN(max(tr.Len()-n, 1))
					wantSuspicions(t, fmt.Sprintf("%s from token %d", file, from), cut(t, tr, from, n))
				}
			}
		})
	}
}

// A generation that loops, and text of a fixed period, are no interleaving.
func TestNoWarningForLoops(t *testing.T) {
	tr := only(t, repositoryTrace(t), 0, 1, 2, 3, 4, 5, 6, 7)
	for _, period := range []int{2, 3, 5, 17, 40, 60} {
		loop := derived(t, tr)
		var a Activation
		for i := range 1000 {
			tr.At(i%period, &a)
			if i%7 == 3 { // not quite a loop
				tr.At(i%tr.Len(), &a)
			}
			a.Seq, a.Pos = 0, int64(i)
			appendTo(t, loop, &a)
		}
		wantSuspicions(t, fmt.Sprintf("loop of %d", period), loop)
	}
}

func TestWarnsOfInterleavedSequences(t *testing.T) {
	check := func(t *testing.T, name string, tr *Trace, strides ...int) {
		for _, stride := range strides {
			wantSuspicions(t, fmt.Sprintf("%s, stride %d", name, stride), woven(t, tr, stride), found{InterleavedSequences, -1, stride})
		}
	}
	check(t, "tinymoe-2000", repositoryTrace(t), 2, 3)
	for _, test := range []struct {
		file    string
		tokens  int // enough for as many sequences as the longest stride
		strides []int
	}{
		{"traces/gpt-oss-20b.jsonl.gz", 12000, []int{2, 25}},
		{"traces/deepseek-v2-lite-chat.jsonl.gz", 8000, []int{3, 50}},
		{"traces/mixtral-8x7b-instruct.jsonl.gz", 600, []int{2}},
		{"traces/qwen1.5-moe-a2.7b-chat-4layers-batch25.jsonl.gz", 3000, []int{2, 3, 25}},
	} {
		t.Run(filepath.Base(test.file), func(t *testing.T) {
			t.Parallel()
			check(t, test.file, readTrace(t, testfiles.Shared(t, test.file), test.tokens), test.strides...)
		})
	}
}

func TestWarnsOfShiftedLayers(t *testing.T) {
	check := func(t *testing.T, name string, tr *Trace) {
		last := tr.Header.Shape.Layers - 1
		for _, layers := range [][]int{{0}, {last / 2}, {last}, {1, 2}} {
			for _, by := range []int{1, -2} {
				if last < 4 && len(layers) > 1 {
					continue // half of the layers: which half is off cannot be told
				}
				wantSuspicions(t, fmt.Sprintf("%s, layers %d off by %d", name, layers, by), delayed(t, tr, by, layers...), found{ShiftedLayer, layers[0], by})
			}
		}
	}
	check(t, "tinymoe-2000", repositoryTrace(t))
	for _, file := range []string{
		"traces/gpt-oss-20b.jsonl.gz", "traces/deepseek-v2-lite-chat.jsonl.gz", "traces/qwen1.5-moe-a2.7b-chat-4layers-batch25.jsonl.gz",
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			check(t, file, readTrace(t, testfiles.Shared(t, file), 1500))
		})
	}
}

// Layer 0 of these published logs is one row late in its sequence, and the decoded rows of
// 25 sequences alternate under one number.
func TestWarnsOfQwenLogs(t *testing.T) {
	tr := qwenLogs(t)
	start := qwenWarmUp + qwenPrefill
	late := found{ShiftedLayer, 0, 1}
	wantSuspicions(t, "prefill after the warm-up", cut(t, tr, 0, start), late)
	good := only(t, tr, 1, 2, 3, 4)
	wantSuspicions(t, "decode in file order", cut(t, good, start, good.Len()), found{InterleavedSequences, -1, 25})
	for i := start; i < tr.Len(); i++ {
		tr.Seqs[i] = int64((i - start) % 25)
	}
	const full = 82 * 25 // then the batch shrinks
	wantSuspicions(t, "decode by sequence", cut(t, tr, start, full), late)
	wantSuspicions(t, "decode by sequence, good layers", cut(t, only(t, tr, 1, 2, 3, 4), start, full))
}

func TestWarningsOfCollect(t *testing.T) {
	s := collect(t, delayed(t, repositoryTrace(t), 1, 3))
	if len(s.Warnings) != 1 {
		t.Fatalf("got %d warnings, want 1: %+v", len(s.Warnings), s.Warnings)
	}
	for _, part := range []string{"layer 3 (block 3) is out of step, 1 row late", "drop the first 1 row of its choices"} {
		if !strings.Contains(s.Warnings[0].Text, part) {
			t.Errorf("got %q, want it to say %q", s.Warnings[0].Text, part)
		}
	}
	s = collect(t, woven(t, repositoryTrace(t), 3))
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].Text, "rows of 3 sequences seem to alternate") {
		t.Errorf("got %+v, want one of 3 sequences", s.Warnings)
	}
}

func TestLateness(t *testing.T) {
	for _, test := range []struct {
		name  string
		pairs []int // the best shift of each pair, all clear; 9: a pair that tells nothing
		want  []int
	}{
		{"in step", []int{0, 0, 0}, []int{0, 0, 0, 0}},
		{"silent", []int{9, 9, 9}, []int{0, 0, 0, 0}},
		{"first layer", []int{-1, 0, 0, 0}, []int{1, 0, 0, 0, 0}},
		{"inner layer", []int{0, 2, -2, 0}, []int{0, 0, 2, 0, 0}},
		{"last layer", []int{0, 0, 0, -1}, []int{0, 0, 0, 0, -1}},
		{"last three of seven", []int{0, 0, 0, 1, 0, 0}, []int{0, 0, 0, 0, 1, 1, 1}},
		{"two ways", []int{0, 1, -2, 1, 0}, []int{0, 0, 1, -1, 0, 0}},
		{"second pair silent", []int{0, 1, 9, 0}, []int{0, 0, 1, 0, 0}},
		{"two layers", []int{1}, []int{-1, 0}},
	} {
		gains := make([][shifts]float64, len(test.pairs))
		for l, s := range test.pairs {
			if s == 9 {
				continue
			}
			for i := range gains[l] {
				gains[l][i] = -20 // worse than none
			}
			gains[l][shiftMost] = 0
			if s != 0 {
				gains[l][s+shiftMost] = 20
			}
		}
		if got := lateness(gains); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestInterquartile(t *testing.T) {
	m := interquartile([]float64{900, 1, 2, 3, 4, 5, 6, -900})
	if m.mean != 3.5 || m.err <= 0 || m.err > 1.2 {
		t.Errorf("got %+v, want a mean of 3.5 and a small error", m)
	}
	if z := (blockMean{mean: 1}).z(); z != 1000 {
		t.Errorf("no spread: got z %v, want 1000", z)
	}
	if z := (blockMean{}).z(); z != 0 {
		t.Errorf("nothing: got z %v, want 0", z)
	}
}

// The bits that reuseTest keeps must agree with a search in the rows.
func TestReuseByDistance(t *testing.T) {
	shape := layout.Shape{Layers: 1, Experts: 12, TopK: 2}
	tr := skewed(t, shape, 1000, true)
	r := newReuseTest(shape)
	r.limit = 2 // of three sequences, so that slots are recycled
	for i := range tr.Seqs {
		if i < 500 {
			tr.Seqs[i] = 0
		} else {
			tr.Seqs[i] = int64(1 + i/100)
		}
	}
	var want, of [reuseSpan + 1]int
	var a Activation
	for i := range tr.Len() {
		tr.At(i, &a)
		r.add(&a)
		for d := 1; d <= min(reuseSpan, i); d++ {
			if tr.Seqs[i-d] != tr.Seqs[i] {
				break
			}
			of[d] += 2
			for _, id := range a.Experts {
				if contains(tr.Experts[2*(i-d):2*(i-d)+2], id) {
					want[d]++
				}
			}
		}
		if r.rows == 0 { // a block ended
			block := r.blocks[len(r.blocks)-1]
			for d := 1; d <= reuseSpan; d++ {
				share := float32(-1)
				if of[d] > 0 {
					share = float32(want[d]) / float32(of[d])
				}
				if block[d] != share {
					t.Fatalf("block %d, distance %d: got %v, want %v", len(r.blocks), d, block[d], share)
				}
			}
			want, of = [reuseSpan + 1]int{}, [reuseSpan + 1]int{}
		}
	}
}

// The largest models are folded and keep to the bound.
func TestShiftTestOfLargeModels(t *testing.T) {
	for _, shape := range []layout.Shape{{Layers: 60, Experts: 512, TopK: 10}, {Layers: 2, Experts: 4096, TopK: 8}, {Layers: 500, Experts: 128, TopK: 8}} {
		s := newShiftTest(shape)
		if n := len(s.counts) * len(s.counts[0]); n > shiftCounts {
			t.Errorf("%+v: got %d counters, want at most %d", shape, n, shiftCounts)
		}
	}
	tr := skewed(t, layout.Shape{Layers: 12, Experts: 1024, TopK: 10}, 400, true)
	if s := newShiftTest(tr.Header.Shape); s.width >= 1024 {
		t.Fatalf("12 x 1024: got a width of %d, want it folded", s.width)
	}
	k, ids := 10, tr.Header.ids()
	for i := range tr.Len() { // each layer chooses what the one before did
		for l := 1; l < 12; l++ {
			copy(tr.Experts[i*ids+l*k:i*ids+(l+1)*k], tr.Experts[i*ids:i*ids+k])
		}
	}
	wantSuspicions(t, "12 x 1024, layer 7 late", delayed(t, tr, 1, 7), found{ShiftedLayer, 7, 1})
}

// Rows of very many experts end the tests rather than the user's patience.
func TestSuspectsBoundWork(t *testing.T) {
	shape := layout.Shape{Layers: 2, Experts: 4096, TopK: 4096}
	if s := newShiftTest(shape); s.limit >= shiftBlock*shiftBlocks {
		t.Errorf("shift test: got %d rows of %d pairs", s.limit, 4096*4096)
	}
	row := make([]int32, 8192)
	for i := range row {
		row[i] = int32(i % 4096)
	}
	r := newReuseTest(shape)
	r.work = reuseWork - 50*len(row)*reuseSpan // nearly done
	for i := range 300 {
		r.add(&Activation{Pos: int64(i), Experts: row})
	}
	if r.work > reuseWork+reuseSpan*len(row) {
		t.Errorf("reuse test: counted %d uses, want about %d at most", r.work, reuseWork)
	}
}

func BenchmarkSuspects(b *testing.B) {
	for _, shape := range []layout.Shape{{Layers: 26, Experts: 64, TopK: 6}, {Layers: 48, Experts: 512, TopK: 10}} {
		tr := skewed(b, shape, 1000, false)
		for _, with := range []bool{false, true} {
			b.Run(fmt.Sprintf("%dx%d,tests=%v", shape.Layers, shape.Experts, with), func(b *testing.B) {
				var a Activation
				c := newCollector(tr.Header)
				for i := 0; b.Loop(); i++ {
					if i%suspectRows == 0 {
						c.odd = newSuspects(tr.Header)
					}
					tr.At(i%tr.Len(), &a)
					if !with {
						c.odd.rows = suspectRows
					}
					c.add(&a)
				}
			})
		}
	}
}
