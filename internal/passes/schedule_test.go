package passes

import (
	"fmt"
	"slices"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

func sample(t *testing.T, seqs []int64, phases []trace.Phase) *trace.Trace {
	t.Helper()
	tr, err := trace.NewTrace(trace.Header{Model: "m", Shape: layout.Shape{Layers: 2, Experts: 8, TopK: 2}, Tokens: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, seq := range seqs {
		x := int32(i % 4)
		a := trace.Activation{Seq: seq, Pos: int64(i), Phase: phases[i], Token: int32(i), Experts: []int32{x, x + 1, x + 2, x + 3}}
		if err := tr.Append(&a); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func TestScheduleDealsEachTokenOnce(t *testing.T) {
	p, d := trace.Prefill, trace.Decode
	tr := sample(t, []int64{5, 5, 7, 5, 7, 9, 5}, []trace.Phase{p, p, p, p, d, d, d})
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "5[0] 5[1] 7[2] 5[3] 7[4]. 9[5]. 5[6]."},
		{Options{MaxTokens: 3}, "5[0] 5[1]. 7[2]."},
		{Options{Chunk: 2}, "5[0 1] 7[2] 5[3] 7[4]. 9[5]. 5[6]."},
		{Options{Chunk: 10}, "5[0 1 3] 7[2] 7[4]. 9[5]. 5[6]."},
		{Options{Batch: 2}, "5[0]+7[2] 5[1]+7[4]. 5[3]+9[5]. 5[6]."},
		{Options{Batch: 9, Chunk: 2}, "5[0 1]+7[2]+9[5]. 5[3]+7[4]. 5[6]."},
	} {
		s := New(tr, c.o)
		for range 2 {
			if got := text(s); got != c.want {
				t.Errorf("%+v: got %s, want %s", c.o, got, c.want)
			}
			s.Rewind()
		}
	}
}

// text writes the passes: parts joined by +, with a dot where a sequence ends.
func text(s *Schedule) string {
	var passes []string
	for parts := s.Next(); parts != nil; parts = s.Next() {
		pass := ""
		for i, p := range parts {
			if i > 0 {
				pass += "+"
			}
			pass += fmt.Sprintf("%d%v", p.Seq, p.Tokens)
			if p.Last {
				pass += "."
			}
		}
		passes = append(passes, pass)
	}
	out := ""
	for i, p := range passes {
		if i > 0 {
			out += " "
		}
		out += p
	}
	return out
}

func TestKnown(t *testing.T) {
	p := trace.Prefill
	tr := sample(t, []int64{0, 0, 0}, []trace.Phase{p, p, p})
	s := New(tr, Options{Chunk: 3})
	phase, ids := s.Known(Part{Tokens: []int32{0, 1, 2}})
	if phase != trace.Prefill || !slices.Equal(ids, []int32{0, 1, 2}) {
		t.Errorf("a chunk: got %v %v, want prefill and its ids", phase, ids)
	}
	if phase, _ := s.Known(Part{Tokens: []int32{1}}); phase != trace.Decode {
		t.Errorf("a single token: got %v, want decode", phase)
	}
	tr.Tokens[1] = -1
	if _, ids := s.Known(Part{Tokens: []int32{0, 1}}); ids != nil {
		t.Errorf("a token whose id is not known: got %v, want nil", ids)
	}
}

func TestUnionNamesEachExpertOnce(t *testing.T) {
	d := trace.Decode
	tr := sample(t, []int64{0, 1, 2}, []trace.Phase{d, d, d})
	s := New(tr, Options{Batch: 3})
	parts := s.Next()
	u := NewUnion(s.Shape())
	u.Gather(s, parts, 0)
	if want := []int32{0, 1, 2, 3}; !slices.Equal(u.Experts, want) {
		t.Errorf("experts: got %v, want %v", u.Experts, want)
	}
	if len(u.All) != 3 || len(u.Choices) != 3 || !slices.Equal(u.Choices[2][0].Experts, []int32{2, 3}) {
		t.Errorf("choices: got %v and %v, want three, the last one [2 3]", u.All, u.Choices)
	}
	if s.Width() != 6 {
		t.Errorf("width: got %d, want 6", s.Width())
	}
}
