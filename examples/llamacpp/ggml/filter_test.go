package ggml

import (
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
)

// named is a tensor as llama.cpp names it, with so many sources.
func named(name string, sources int) *Tensor {
	t := &Tensor{}
	copy(t.name[:], name)
	for i := range sources {
		t.Sources[i] = &Tensor{}
	}
	return t
}

// What C calls answers as Wants does, and enters Go only where it must.
func TestFilter(t *testing.T) {
	told := 0
	var got *Tensor
	answer := true
	f := NewFilter(purego.NewCallback(func(x *Tensor, ask bool, f *Filter) bool {
		told++
		got = x
		return answer
	}), 42)
	call := func(x *Tensor, ask uintptr) bool {
		r, _, _ := purego.SyscallN(f.Callback(), uintptr(unsafe.Pointer(x)), ask, f.UserData())
		return r&0xff != 0
	}
	cases := []struct {
		name    string
		sources int
		want    bool
	}{
		{"ffn_moe_weights-0", 2, true},
		{"ffn_moe_weights-7", 2, true},
		{"ffn_moe_weights-60", 2, true},
		{"ffn_moe_weights-", 2, true}, // no number: readRouting's to refuse
		{"ffn_moe_weights-0 (copy)", 2, true},
		{"ffn_moe_weights-0", 1, false}, // scaled or reshaped
		{"ffn_moe_weights-0 (reshaped)", 1, false},
		{"ffn_moe_weights_norm-0", 2, false},
		{"ffn_moe_weights_softmax-0", 2, false},
		{"ffn_moe_weights", 2, false},
		{"ffn_moe_weight-0", 2, false},
		{"ffn_moe_weights=0", 2, false},
		{"Ffn_moe_weights-0", 2, false},
		{" ffn_moe_weights-0", 2, false},
		{"ffn_moe_topk-0", 2, false},
		{"ffn_moe_probs-0", 2, false},
		{"ffn_moe_", 2, false},
		{"ffn_moe_out-0", 2, false},
		{"", 2, false},
		{"", 0, false},
		{"blk.0.ffn_gate_exps.weight", 0, false},
		{"a name that takes all of the sixty-four bytes that there are, ye", 2, false},
	}
	for _, pass := range []Pass{PassNothing, PassWeights, PassAll} {
		f.Set(pass)
		for _, c := range cases {
			x := named(c.name, c.sources)
			want := c.want && pass == PassWeights || pass == PassAll
			if w := f.Wants(x); w != want {
				t.Errorf("pass %d, %q of %d sources: Wants says %v, want %v", pass, c.name, c.sources, w, want)
			}
			before := told
			if r := call(x, 1); r != want {
				t.Errorf("pass %d, %q of %d sources: the filter answers %v, want %v", pass, c.name, c.sources, r, want)
			}
			if filterAddress != 0 && told-before != map[bool]int{true: 1}[pass == PassAll] {
				t.Errorf("pass %d, %q: the question was passed on %d times", pass, c.name, told-before)
			}
			before = told
			for _, answer = range []bool{false, true} {
				if r := call(x, 0); r != answer || got != x {
					t.Errorf("pass %d, %q: data: got %v, want %v", pass, c.name, r, answer)
				}
			}
			if told-before != 2 {
				t.Errorf("pass %d, %q: data was passed on %d times, want 2", pass, c.name, told-before)
			}
			// C sets the lowest byte of a bool only.
			if r := call(x, 0xabcdef00); !r || told-before != 3 {
				t.Errorf("pass %d, %q: a false whose upper bytes are anything was taken for a question", pass, c.name)
			}
		}
	}
	if f.User != 42 {
		t.Errorf("got user %d, want 42", f.User)
	}
}
