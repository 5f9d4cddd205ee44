package discover

import (
	"strings"
	"testing"

	"outrider/layout"
)

func TestRouters(t *testing.T) {
	m := family(t, "deepseek-v4")
	in := m.input()
	in.Facts.Routing.RouterRule = layout.RouterRule{Scoring: layout.ScoreSqrtSoftplus, Groups: 2, GroupsUsed: 1, Scale: 1.5}
	cp, err := Find(in, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := cp.Routers
	if r == nil || r.RouterRule != in.Facts.Routing.RouterRule || r.Width != 64 || r.Tokens != 10 {
		t.Fatalf("got %+v (%s), want the rule given, width 64, 10 tokens", r, cp.NoRouters)
	}
	if r.Layers[0].Hash.Source != "layers.0.ffn.gate.tid2eid" || r.Layers[0].Selection.Type != "" || r.Layers[1].Hash.Type != "" ||
		r.Layers[1].Selection.Source != "layers.1.ffn.gate.bias" {
		t.Errorf("got %+v, want a table in the first layer and a bias in the second", r.Layers)
	}
	cp, err = Find(in, Options{TopK: 3})
	if err != nil || cp.Routers != nil || !strings.Contains(cp.NoRouters, "want 3 experts for each token") {
		t.Errorf("with another top-k: got %v, %q, %v", cp.Routers, cp.NoRouters, err)
	}
}

// What is not said: by sigmoid with a selection bias, else by softmax.
func TestScoringUnknown(t *testing.T) {
	for name, want := range map[string]layout.Scoring{"mixtral": layout.ScoreSoftmax, "lfm2-moe": layout.ScoreSigmoid} {
		cp, err := Find(family(t, name).input(), Options{})
		if err != nil || cp.Routers == nil || cp.Routers.Scoring != want || cp.Routers.Scale != 1 {
			t.Errorf("%s: got %+v and %v, want %s, scale 1", name, cp.Routers, err, want)
		}
	}
}

// Routers that cannot be read are no reason not to serve the experts.
func TestNoRouters(t *testing.T) {
	const r = "model.layers.{L}.mlp.gate.weight "
	for _, test := range []struct {
		want  string
		facts Facts
		lines []string
	}{
		{"no router matrix", Facts{}, nil},
		{"has type F8_E4M3", Facts{}, []string{r + "F8_E4M3 E H"}},
		{"want one row for each of 4 experts", Facts{Experts: 4}, []string{r + "BF16 F H"}},
		{"two router matrices", Facts{}, []string{r + "BF16 E H", "model.layers.{L}.mlp.router.weight BF16 E H"}},
		{"both the same bias", Facts{}, []string{r + "BF16 E H", "model.layers.{L}.mlp.expert_bias F32 E", "model.layers.{L}.mlp.gate.expert_bias F32 E"}},
		{"want one number for each", Facts{}, []string{r + "BF16 E H", "model.layers.{L}.mlp.expert_bias F32 F"}},
		{"scales the router's input", Facts{}, []string{r + "BF16 E H", "model.layers.{L}.mlp.router.scale F32 H"}},
		{"has 24 columns, those before it 64", Facts{}, []string{"model.layers.0.mlp.gate.weight BF16 E H", "model.layers.1.mlp.gate.weight BF16 E F"}},
		{"3 of 2 groups", Facts{Routing: Routing{RouterRule: layout.RouterRule{Groups: 2, GroupsUsed: 3}}}, []string{r + "BF16 E H"}},
		{"2 of 3 groups", Facts{Routing: Routing{RouterRule: layout.RouterRule{Groups: 3, GroupsUsed: 2}}}, []string{r + "BF16 E H"}},
		{"said so", Facts{Routing: Routing{Unreadable: "said so"}}, []string{r + "BF16 E H"}},
		{"want 2 experts for each token", Facts{}, []string{r + "BF16 E H", "model.layers.{L}.mlp.gate.tid2eid I32 V 3"}},
		{"read are I32 and I64", Facts{}, []string{r + "BF16 E H", "model.layers.{L}.mlp.gate.tid2eid F32 V K"}},
		{"tokens, those before", Facts{}, []string{r + "BF16 E H", "model.layers.0.mlp.gate.tid2eid I32 V K", "model.layers.1.mlp.gate.tid2eid I32 H K"}},
	} {
		m := model{facts: test.facts, lines: lines(test.lines, at("model.layers.{L}.mlp.experts", linear))}
		in := m.input()
		cp, err := Find(in, Options{})
		if err != nil {
			t.Errorf("%s: %v", test.want, err)
			continue
		}
		checkWhole(t, in, cp)
		if cp.Routers != nil || !strings.Contains(cp.NoRouters, test.want) {
			t.Errorf("got routers %+v and %q, want none because %q", cp.Routers, cp.NoRouters, test.want)
		}
	}
}
