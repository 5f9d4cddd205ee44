package gguf

import (
	"fmt"

	"outrider/layout"
	"outrider/layout/discover"
)

// Gating functions as expert_gating_func numbers them.
var scorings = map[uint64]layout.Scoring{
	1: layout.ScoreSoftmax, 2: layout.ScoreSigmoid, 3: layout.ScoreChosen, 4: layout.ScoreSqrtSoftplus,
}

// unsaid are the functions of architectures whose files don't say them, where
// the usual guess (by whether there is a selection bias) is wrong.
var unsaid = map[string]layout.Scoring{
	"ernie4_5-moe": layout.ScoreSoftmax, "gpt-oss": layout.ScoreChosen, "gptoss": layout.ScoreChosen, "llama4": layout.ScoreSigmoid,
}

// routing reads how the routers choose. What the metadata does not say stays unknown.
func (f *File) routing() (r discover.Routing) {
	number := func(key string) uint64 {
		v, ok := f.ArchMeta(key)
		if !ok {
			return 0
		}
		n, ok := v.Uint()
		if (!ok || n > layout.MaxExperts) && r.Unreadable == "" {
			r.Unreadable = fmt.Sprintf("metadata key %s.%s is %v, want a number up to %d", f.Architecture(), key, v, layout.MaxExperts)
		}
		return n
	}
	gating := number("expert_gating_func")
	r.Groups, r.GroupsUsed = int(number("expert_group_count")), int(number("expert_group_used_count"))
	if v, ok := f.ArchMeta("expert_weights_norm"); ok {
		r.Normalised, _ = v.Bool()
	}
	if v, ok := f.ArchMeta("expert_weights_scale"); ok {
		if scale, ok := v.Float(); ok && scale > 0 && scale < 1e30 {
			r.Scale = scale
		}
	}
	if gating == 0 || r.Unreadable != "" {
		r.Scoring = unsaid[f.Architecture()]
		return r
	}
	scoring, known := scorings[gating]
	if !known {
		r.Unreadable = fmt.Sprintf("metadata key %s.expert_gating_func is %d, known are 1 to %d", f.Architecture(), gating, len(scorings))
	}
	r.Scoring = scoring
	return r
}
