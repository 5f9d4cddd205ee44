package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"outrider/internal/passes"
	"outrider/internal/runs"
	"outrider/internal/testtrace"
	"outrider/layout"
	"outrider/router"
	"outrider/trace"
)

// sweep runs the properties of speculation on all cells instead of a sample, on
// more tokens: go test ./internal/sim -run Misses -sweep -v -timeout 1h.
var sweep = flag.Bool("sweep", false, "run the properties of speculation on all cells")

// setting is one cell of a property.
type setting struct {
	keep         string
	cache        int
	ratio        float64
	batch, chunk int
}

// counted are the demand misses of a run: demanded experts that were not resident
// when the routing of their layer (or, where a layer comes in waves, the turn of their
// wave) was known. Late ones, whose speculative read a demand had to wait for, are
// among them.
type counted struct {
	*Result
	misses, late, ahead int64
}

func count(t testing.TB, tr *trace.Trace, run string, s setting, p router.Predictor) counted {
	t.Helper()
	r, err := runs.Parse(run)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{CacheExperts: s.cache, Ratio: s.ratio, Batch: s.batch, Chunk: s.chunk, Predictor: p}
	e, err := newEngine(context.Background(), nil, tr, r, o.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	for parts := e.schedule.Next(); parts != nil; parts = e.schedule.Next() {
		if err := e.pass(parts); err != nil {
			t.Fatalf("%s %+v: %v", run, s, err)
		}
	}
	return counted{Result: e.result(), misses: e.demanded - e.hits, late: e.late, ahead: e.ahead}
}

// settings are caches of 10, 25 and 50 %, just under and just over the token cycle,
// each at three ratios, under both orders of eviction.
func settings(shape layout.Shape, batch, chunk int) (all []setting) {
	cycle := shape.Layers * shape.TopK
	for _, cache := range []int{shape.Count() / 10, shape.Count() / 4, shape.Count() / 2, cycle - 1, cycle + 1} {
		if cache < shape.TopK || cache > shape.Count() {
			continue
		}
		for _, ratio := range []float64{0.25, 1, 4} {
			for _, keep := range []string{"lru", "online"} {
				all = append(all, setting{keep, cache, ratio, batch, chunk})
			}
		}
	}
	return all
}

// property is that speculation costs next to no demand misses.
type property struct {
	name  string
	trace *trace.Trace
	most  float64 // misses with speculation over those without
	twist func(pass, layer int, p []float32)
	check func(t *testing.T, where string, without, with counted) // nil: nothing more
}

// hold checks it on a sample of the settings (-sweep: all), and returns the worst.
func (p property) hold(t *testing.T, sample []setting, batch, chunk int) (worst float64) {
	t.Helper()
	predictor, err := router.New("online", p.trace.Header.Shape)
	if err != nil {
		t.Fatal(err)
	}
	m := newMemo(predictor, passes.New(p.trace, passes.Options{Batch: batch, Chunk: chunk}))
	fresh := func() router.Predictor {
		player := m.predictor()
		player.twist = p.twist
		return player
	}
	var mu sync.Mutex
	var group sync.WaitGroup
	limit := make(chan struct{}, runtime.NumCPU())
	for _, s := range sample {
		group.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			without, with := count(t, p.trace, s.keep, s, fresh()), count(t, p.trace, s.keep+"+spec", s, fresh())
			where := fmt.Sprintf("%s, %+v", p.name, s)
			mu.Lock()
			defer mu.Unlock()
			if float64(with.misses) > p.most*float64(without.misses) {
				t.Errorf("%s: got %d demand misses with speculation, %d without: want at most %v times", where, with.misses, without.misses, p.most)
			}
			if without.misses > 0 {
				worst = max(worst, float64(with.misses)/float64(without.misses))
			}
			if p.check != nil {
				p.check(t, where, without, with)
			}
		})
	}
	group.Wait()
	return worst
}

// sampled are n of the settings, by seed; all of them in a sweep.
func sampled(all []setting, n int, seed uint64) []setting {
	if *sweep || n >= len(all) {
		return all
	}
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all[:n]
}

// scaled is n, or less where tests are to be quick.
func scaled(n int) int {
	if testing.Short() || raceEnabled {
		return max(n/8, 1)
	}
	return n
}

// TestMissesOnRecordedTraces: at most 1.02 times the demand misses with speculation
// of those without, on each recorded trace.
func TestMissesOnRecordedTraces(t *testing.T) {
	tokens := scaled(300)
	if *sweep {
		tokens = 2000
	}
	for i, name := range []string{
		"traces/gpt-oss-20b.jsonl.gz", "traces/deepseek-v2-lite-chat.jsonl.gz", "traces/mixtral-8x7b-instruct.jsonl.gz",
		"traces/switch-base-8-encoder.jsonl.gz", "traces/qwen1.5-moe-a2.7b-chat-4layers-batch25.jsonl.gz", "tinymoe/traces.jsonl.gz",
	} {
		t.Run(name, func(t *testing.T) {
			tr := testtrace.Shared(t, name, tokens)
			p := property{name: name, trace: tr, most: 1.02}
			for k, bc := range [][2]int{{1, 1}, {4, 1}, {1, 64}, {4, 64}} {
				sample := sampled(settings(tr.Header.Shape, bc[0], bc[1]), scaled(12), uint64(10*i+k))
				worst := p.hold(t, sample, bc[0], bc[1])
				t.Logf("batch %d, chunk %d: at most %.3f times the misses, in %d settings", bc[0], bc[1], worst, len(sample))
			}
		})
	}
}
