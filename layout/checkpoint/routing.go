package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"

	"outrider/layout"
	"outrider/layout/discover"
)

// scorings are the functions as config.json calls them. dots1 gives the name of
// DeepSeek's method, which is by sigmoid.
var scorings = map[string]layout.Scoring{
	"softmax": layout.ScoreSoftmax, "sigmoid": layout.ScoreSigmoid, "noaux_tc": layout.ScoreSigmoid,
	"sqrtsoftplus": layout.ScoreSqrtSoftplus, "sqrt_softplus": layout.ScoreSqrtSoftplus,
}

// kinds are the rules of models whose config.json does not say them, because
// their code has but one: by the start of their architecture.
var kinds = []struct {
	architecture string
	rule         layout.RouterRule
}{
	{"gpt_oss", layout.RouterRule{Scoring: layout.ScoreChosen, Normalised: true}},
	{"granitemoe", layout.RouterRule{Scoring: layout.ScoreChosen, Normalised: true}},
	{"jetmoe", layout.RouterRule{Scoring: layout.ScoreChosen, Normalised: true}},
	{"mixtral", layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true}},
	{"dbrx", layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true}},
	{"ernie4_5", layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true}},
	{"hunyuan", layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true}},
	{"longcat", layout.RouterRule{Scoring: layout.ScoreSoftmax}},
	{"llama4", layout.RouterRule{Scoring: layout.ScoreSigmoid}},
}

// routing reads how the routers choose. What config.json does not say stays unknown.
func (c *config) routing(architecture string) (r discover.Routing) {
	for _, k := range kinds {
		if strings.HasPrefix(architecture, k.architecture) {
			r.RouterRule = k.rule
		}
	}
	if name, v := c.find("scoring_func", "score_function", "score_func", "moe_router_activation_func", "moe_router_activation", "moe_router_score_function", "scoring_function"); v != nil {
		scoring, known := scorings[strings.ToLower(strings.Trim(string(v), `"`))]
		if !known {
			r.Unreadable = fmt.Sprintf("%s of config.json is %.40s, known are softmax, sigmoid and sqrtsoftplus", name, v)
		}
		r.Scoring = scoring
	} else if _, v := c.find("moe_primary_router_apply_softmax"); string(v) == "false" {
		r.Scoring = layout.ScoreSigmoid // SmallThinker
	}
	if _, v := c.find("norm_topk_prob", "moe_renormalize", "route_norm", "norm_expert_weight"); v != nil {
		_ = json.Unmarshal(v, &r.Normalised) // another kind of value says nothing
	}
	if _, v := c.find("routed_scaling_factor", "route_scale", "moe_router_scaling_factor", "routed_scale"); v != nil {
		var scale float64
		if json.Unmarshal(v, &scale) == nil && scale > 0 && scale < 1e30 {
			r.Scale = scale
		}
	}
	c.groups(&r)
	return r
}

// groups reads the groups of experts from which a router chooses. topk_method
// says whether it does, and how it ranks them.
func (c *config) groups(r *discover.Routing) {
	groups, used := c.number("n_group", "num_expert_group", "n_groups"), c.number("topk_group", "n_limited_groups")
	if groups < 2 {
		return
	}
	switch c.text("topk_method") {
	case "greedy":
		return
	case "group_limited_greedy":
		r.Unreadable = "its routers rank groups of experts by the best one (topk_method group_limited_greedy), which is not done here"
	}
	r.Groups, r.GroupsUsed = groups, used
}
