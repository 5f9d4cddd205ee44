package importer

import (
	"bytes"
)

// formPrefetchLog is the log of llama-prefetch.cpp's expert tracer
// (LLAMA_EXPERT_TRACE_LOGGING=1, at debug level): for each layer of each pass
//
//	[EXPERT-TRACE] Layer 3: Experts [17, 3, 60, 9]
//
// with the ids of all tokens of the pass after one another.
const formPrefetchLog = "llama-prefetch-log"

// warmUpLists is llama.cpp's first pass, unless it runs with --no-warmup.
const warmUpLists = "as in llama.cpp's warm-up, where each token uses all experts"

var (
	prefetchMark    = []byte("[EXPERT-TRACE] Layer ")
	prefetchExperts = []byte(": Experts [")
)

func sniffPrefetchLog(p *peek) bool { return bytes.Contains(p.head, prefetchMark) }

func openPrefetchLog(in *input) (*content, error) {
	return openPasses(in, &passForm{name: formPrefetchLog, each: in.files[0].prefetchLog, whole: true, lists: warmUpLists})
}

// prefetchLog passes over lines that are not the tracer's.
func (f *file) prefetchLog(fn func(*layerRows) error) error {
	var r layerRows
	return f.eachLine(func(at place, line []byte) error {
		_, text, found := bytes.Cut(line, prefetchMark)
		if !found {
			return nil
		}
		layer, list, found := bytes.Cut(text, prefetchExperts)
		if !found {
			return nil // "MoE layer detected", while the graph is built
		}
		n, okLayer := digits(layer)
		list, closed := bytes.CutSuffix(list, []byte("]"))
		if !okLayer || !closed || len(list) == 0 {
			return f.damaged(at, "found %.60q, want Layer N: Experts [ids]", text)
		}
		r.at, r.layer, r.ids = at, n, r.ids[:0]
		for text := range bytes.SplitSeq(list, []byte(",")) {
			id, ok := digits(bytes.TrimSpace(text))
			if !ok {
				return f.damaged(at, "%.20q is no expert id", bytes.TrimSpace(text))
			}
			r.ids = append(r.ids, int32(id))
		}
		return fn(&r)
	})
}
