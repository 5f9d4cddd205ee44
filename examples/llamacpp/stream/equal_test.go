package stream

import (
	"testing"

	"outrider/examples/llamacpp/internal/libtest"
	"outrider/examples/llamacpp/llama"
	"outrider/runtime"
)

// Three prompts of different domains, 128 tokens each (fewer where every token reads all
// its experts): the same tokens from the same logits, bit for bit, as llama.cpp alone
// computes them, mapped and resident. The least budget takes a token at a time, and so
// llama.cpp alone is given one at a time to compare with.
func TestEqualToStock(t *testing.T) {
	const n, few = 128, 24
	path, prompts := libtest.Tiny(t), libtest.ShippedReference(t)[:3]
	o := llama.ContextOptions{Tokens: 256}
	var want, single []text
	for _, mapped := range []bool{false, true} {
		m := stockModel(t, path, mapped)
		for i, p := range prompts {
			_, e := stock(t, m, o)
			got := greedy(t, e, p.IDs, n)
			if mapped {
				if d := got.difference(want[i]); d != "" {
					t.Errorf("llama.cpp mapped against resident, %s: %s", p.Name, d)
				}
				continue
			}
			want = append(want, got)
			_, e = stock(t, m, o)
			single = append(single, greedy(t, oneByOne(e), p.IDs, few))
		}
	}
	for _, arm := range []struct {
		name  string
		share float64
		o     Options
		look  bool
	}{
		{"outrider, floor", 0, Options{}, true},
		{"outrider, a quarter", 0.25, Options{}, true},
		{"outrider, a quarter, no look-ahead", 0.25, Options{}, false},
		{"outrider, all", 1, Options{}, true},
		{"outrider, a quarter, mapped", 0.25, Options{Dense: DenseMapped}, true},
		{"outrider, a quarter, through the page cache", 0.25, Options{Runtime: runtime.Options{Buffered: true}}, true},
		{"demand, floor", 0, Options{Runtime: runtime.Options{Keep: runtime.KeepLRU}}, false},
		{"demand, a quarter", 0.25, Options{Runtime: runtime.Options{Keep: runtime.KeepLRU}}, false},
		{"demand, all", 1, Options{Runtime: runtime.Options{Keep: runtime.KeepLRU}}, false},
	} {
		t.Run(arm.name, func(t *testing.T) {
			arm.o.Path = path
			m := openModel(t, arm.o, arm.share)
			d, e := newDecoder(t, m, DecoderOptions{ContextOptions: o, NoLookahead: !arm.look})
			want, n := want, n
			if arm.share == 0 {
				want, n, e = single, few, oneByOne(e)
			}
			for i, p := range prompts {
				if diff := greedy(t, e, p.IDs, n).difference(want[i]); diff != "" {
					t.Errorf("%s: %s", p.Name, diff)
				}
				if err := d.End(0); err != nil {
					t.Error(err)
				}
			}
			st := wellKept(t, arm.name, m.Runtime)
			t.Logf("hits %.3f, budget %d KiB, %d KiB read, %d hints, %d cuts, note %q", st.HitRate(), st.Budget>>10, (st.Reads.DemandBytes+st.Reads.SpeculativeBytes)>>10, st.Hints.Told, d.Cuts, m.Note)
		})
	}
}
