package train

import (
	"flag"
	"testing"

	"outrider/internal/testtrace"
	"outrider/router"
	"outrider/router/learned"
	"outrider/trace"
)

var full = flag.Bool("full", false, "TestAgainstOnline: train on 14,000 tokens of each trace, for some minutes each")

// TestAgainstOnline trains on the first sequences of each recorded trace and compares
// on the next ones, which neither the training nor its stopping has seen.
func TestAgainstOnline(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("trains for some ten seconds a trace")
	}
	tokens, unseen, o := 2000, 800, Options{Epochs: 6, MemoryBytes: 32 << 20}
	if *full {
		tokens, unseen, o = 14000, 4000, Options{}
	}
	for _, name := range []string{"traces/gpt-oss-20b.jsonl.gz", "traces/deepseek-v2-lite-chat.jsonl.gz", "tinymoe/traces.jsonl.gz"} {
		t.Run(name, func(t *testing.T) {
			const sequence = 2000 // tokens, at most
			before, after := cut(t, testtrace.Shared(t, name, tokens+unseen+sequence), tokens, unseen)
			m, r := trained(t, o, before)
			t.Logf("trained on %d tokens, held out %d, %d examples, %d epochs, best %d, held-out loss %.4f of %.4f", r.TrainTokens, r.HeldOutTokens,
				r.TrainExamples, len(r.Epochs), r.Best, r.Loss(), r.Start)
			for _, c := range r.Comparisons {
				t.Logf("held out %+v", c)
			}
			compare(t, m, before, after)
		})
	}
}

// compare evaluates on a trace that was not trained on.
func compare(t *testing.T, m *learned.Model, before, after *trace.Trace) {
	t.Helper()
	online := func(warm bool) *router.Online {
		o, err := router.NewOnline(before.Header.Shape, router.OnlineOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if warm {
			evaluated(t, o, before)
		}
		return o
	}
	over := func(warm bool) router.Predictor {
		p, err := learned.NewOver(m, online(warm))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, warm := range []bool{false, true} {
		plain, network := evaluated(t, online(warm), after), evaluated(t, over(warm), after)
		for name, r := range map[string]router.Recall{"online": plain, "learned": network} {
			t.Logf("unseen, %d tokens, warm %v, %-7s: recall@K %.3f, 2K %.3f, log loss %.4f", after.Len(), warm, name, r.AtK, r.At2K, r.LogLoss)
		}
		most := plain.LogLoss
		if warm {
			most *= 1.01 // it may add nothing there, but not do harm
		}
		if network.LogLoss > most {
			t.Errorf("warm %v: got log loss %.4f, want at most %.4f", warm, network.LogLoss, most)
		}
	}
}

func evaluated(t *testing.T, p router.Predictor, tr *trace.Trace) router.Recall {
	t.Helper()
	e, err := router.Evaluate(t.Context(), p, tr, router.EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return e.Overall
}

// cut divides a trace at the ends of sequences, about so many tokens each.
func cut(tb testing.TB, t *trace.Trace, first, second int) (before, after *trace.Trace) {
	tb.Helper()
	var order []int64
	size := map[int64]int{}
	for _, seq := range t.Seqs {
		if size[seq] == 0 {
			order = append(order, seq)
		}
		size[seq]++
	}
	where := map[int64]int{}
	n := 0
	for _, seq := range order {
		if n >= first {
			where[seq] = 1
		}
		if n >= first+second {
			where[seq] = 2
		}
		n += size[seq]
	}
	parts := []*trace.Trace{{Header: t.Header}, {Header: t.Header}, {Header: t.Header}}
	var a trace.Activation
	for i := range t.Len() {
		t.At(i, &a)
		if err := parts[where[a.Seq]].Append(&a); err != nil {
			tb.Fatal(err)
		}
	}
	return parts[0], parts[1]
}
