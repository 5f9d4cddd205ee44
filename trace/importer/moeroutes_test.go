package importer

import (
	"fmt"
	"testing"

	"outrider/layout"
	"outrider/trace"
)

// As the patch writes it: of the prompt only the last layer's row is seen.
const moeRoutesSample = `route 0 2 3 1 44:-1 4:-1 74:-1
route 1 0 3 1 40:-1 52:-1 95:0
route 1 1 3 1 127:-1 96:3 108:-1
route 1 2 3 1 30:-1 93:-1 82:-1
route 2 0 3 1 78:-1 32:-1 49:12
route 2 1 3 1 28:-1 93:-1 71:-1
route 2 2 3 1 2:-1 30:1 107:-1
`

var moeRoutesOptions = Options{Experts: 128}

func TestMoERoutes(t *testing.T) {
	i := txOpen(t, formMoERoutes, moeRoutesOptions, txFile(t, "0.routes-record.txt", moeRoutesSample))
	if got, want := i.Header().Shape, (layout.Shape{Layers: 3, Experts: 128, TopK: 3}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("shape is %+v, want %+v", got, want)
	}
	txWantTokens(t, i, []trace.Activation{
		{Pos: 0, Phase: trace.Decode, Token: -1, Experts: []int32{40, 52, 95, 127, 96, 108, 30, 93, 82}},
		{Pos: 1, Phase: trace.Decode, Token: -1, Experts: []int32{78, 32, 49, 28, 93, 71, 2, 30, 107}},
	})
	txWantNote(t, i, "1 passes hold nothing but the last layer's choice")

	// The writer allows several tokens a line.
	i = txOpen(t, formMoERoutes, moeRoutesOptions, txFile(t, "routes.txt", "route 7 5 2 2 1:-1 2:0 3:-1 4:9\n"))
	txWantTokens(t, i, []trace.Activation{{Pos: 0, Token: -1, Experts: []int32{1, 2}}, {Pos: 1, Token: -1, Experts: []int32{3, 4}}})
}

func TestMoERoutesDamage(t *testing.T) {
	ok := moeRoutesSample
	txRunDamage(t, formMoERoutes, "routes.txt", moeRoutesOptions, []txDamage{
		{name: "other top-k", content: ok, want: "the data has top-k 3, but 4 was given", is: errAny, opts: &Options{Experts: 128, TopK: 4}},
		{name: "no route", content: ok + "map 3 1 2\n", want: "line 8: the line is no route, want: route PASS", tokens: 1},
		{name: "no number", content: ok + "route x 0 3 1 1:-1 2:-1 3:-1\n", want: "line 8: a number is missing", tokens: 1},
		{name: "too few", content: ok + "route 3 0 3 1 1:-1 2:-1\n", want: "line 8: it has not k experts for each token", tokens: 1},
		{name: "cut in a line", content: ok + "route 3 0 3 1 1:-1 2:-1 3\n", want: "line 8: an expert or its slot is no number", tokens: 1},
		{name: "other k", content: ok + "route 3 0 2 1 1:-1 2:-1\n", want: "line 8: top-k is 2, but was 3 before"},
		{name: "named twice", content: ok + "route 3 0 3 1 1:-1 2:-1 1:-1\n", want: "line 8: expert id 1 is named twice", tokens: 1},
		{name: "outside", content: ok + "route 3 0 3 1 1:-1 2:-1 128:-1\n", want: "line 8: expert id 128 is outside 0 to 127", tokens: 2},
		{name: "layer is missing", content: ok + "route 3 0 3 1 1:-1 2:-1 3:-1\nroute 4 0 3 1 1:-1 2:-1 3:-1\n", want: "line 8: the pass that begins here has no rows of block 1", tokens: 2},
		{name: "cut", content: ok + "route 3 0 3 1 1:-1 2:-1 3:-1\n", want: "the file ends inside the pass that begins at line 8", tokens: 2},
	})
}

func FuzzMoERoutes(f *testing.F) {
	txFuzz(f, formMoERoutes, "routes.txt", moeRoutesOptions, moeRoutesSample)
}
