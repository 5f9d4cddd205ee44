package importer

import (
	"bytes"

	"outrider/trace"
)

// formMoERoutes is the route trace of everett6/moe-prefetch, a patched llama.cpp
// (LLAMA_MOE_ROUTE_TRACE): a line for each layer of each pass,
//
//	route <pass> <layer> <k> <tokens> <expert>:<slot> … (k for each token)
const formMoERoutes = "moe-prefetch-routes"

var routeWord = []byte("route")

func sniffMoERoutes(p *peek) bool {
	line, whole := p.line()
	if !whole {
		return false
	}
	var r layerRows
	return parseRoute(bytes.Fields(line), &r) == ""
}

func openMoERoutes(in *input) (*content, error) {
	return openPasses(in, &passForm{
		name: formMoERoutes, each: in.files[0].moeRoutes, whole: true, lone: true,
		// The patch sees rows only where one token is routed alone, and a prompt's
		// last layer, which is told apart by the layers it lacks.
		phase: func(tokens int) trace.Phase {
			if tokens == 1 {
				return trace.Decode
			}
			return trace.PhaseUnknown
		},
	})
}

func (f *file) moeRoutes(fn func(*layerRows) error) error {
	var r layerRows
	return f.eachLine(func(at place, line []byte) error {
		if wrong := parseRoute(bytes.Fields(line), &r); wrong != "" {
			return f.damaged(at, "%s, want: route PASS LAYER K TOKENS EXPERT:SLOT …", wrong)
		}
		if err := distinct(r.ids, r.topK); err != nil {
			return f.damaged(at, "%v", err)
		}
		r.at = at
		return fn(&r)
	})
}

// parseRoute reads a line's fields, and answers with what is wrong with them.
func parseRoute(fields [][]byte, r *layerRows) string {
	if len(fields) < 6 || !bytes.Equal(fields[0], routeWord) {
		return "the line is no route"
	}
	var head [4]int // pass, layer, k, tokens
	for i := range head {
		n, ok := digits(fields[i+1])
		if !ok {
			return "a number is missing"
		}
		head[i] = n
	}
	k, pairs := head[2], fields[5:]
	if k < 1 || len(pairs)%k != 0 || len(pairs)/k != head[3] {
		return "it has not k experts for each token"
	}
	r.pass, r.layer, r.topK, r.ids = int64(head[0]), head[1], k, r.ids[:0]
	for _, pair := range pairs {
		id, slot, found := bytes.Cut(pair, []byte(":"))
		n, okID := digits(id)
		_, okSlot := digits(bytes.TrimPrefix(slot, []byte("-"))) // -1: not resident
		if !found || !okID || !okSlot {
			return "an expert or its slot is no number"
		}
		r.ids = append(r.ids, int32(n))
	}
	return ""
}
