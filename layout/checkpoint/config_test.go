package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"outrider/layout"
	"outrider/layout/discover"
	"outrider/layout/safetensors"
)

func TestFacts(t *testing.T) {
	rule := func(r layout.RouterRule) discover.Routing { return discover.Routing{RouterRule: r} }
	for _, test := range []struct {
		name, config string
		want         discover.Facts
	}{
		{"nothing", `{}`, discover.Facts{}},
		{"qwen3-moe", `{"model_type":"qwen3_moe","architectures":["Qwen3MoeForCausalLM"],"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,"hidden_size":2048,"norm_topk_prob":true}`,
			discover.Facts{Architecture: "qwen3_moe", Experts: 128, TopK: 8, Blocks: 48, Hidden: 2048, Routing: rule(layout.RouterRule{Normalised: true})}},
		{"deepseek-v3", `{"model_type":"deepseek_v3","n_routed_experts":256,"num_experts_per_tok":8,"num_hidden_layers":61,"num_nextn_predict_layers":1,"hidden_size":7168,"scoring_func":"sigmoid","topk_method":"noaux_tc","n_group":8,"topk_group":4,"routed_scaling_factor":2.5,"norm_topk_prob":true}`,
			discover.Facts{Architecture: "deepseek_v3", Experts: 256, TopK: 8, Blocks: 61, Predict: 1, Hidden: 7168, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSigmoid, Groups: 8, GroupsUsed: 4, Normalised: true, Scale: 2.5})}},
		{"deepseek-v2-lite", `{"model_type":"deepseek_v2","n_routed_experts":64,"num_experts_per_tok":6,"topk_method":"greedy","n_group":4,"topk_group":2,"scoring_func":"softmax"}`,
			discover.Facts{Architecture: "deepseek_v2", Experts: 64, TopK: 6, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSoftmax})}},
		{"llama-4, nested", `{"model_type":"llama4","text_config":{"model_type":"llama4_text","num_local_experts":16,"num_experts_per_tok":1,"num_hidden_layers":48,"hidden_size":5120},"vision_config":{"num_hidden_layers":34,"hidden_size":1408}}`,
			discover.Facts{Architecture: "llama4", Experts: 16, TopK: 1, Blocks: 48, Hidden: 5120, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSigmoid})}},
		{"qwen3-omni, nested twice", `{"model_type":"qwen3_omni_moe","thinker_config":{"text_config":{"num_experts":128,"num_experts_per_tok":8},"audio_config":{}},"talker_config":{"text_config":{"num_experts":64}}}`,
			discover.Facts{Architecture: "qwen3_omni_moe", Experts: 128, TopK: 8}},
		{"dbrx", `{"model_type":"dbrx","d_model":6144,"n_layers":40,"ffn_config":{"moe_num_experts":16,"moe_top_k":4,"hidden_size":1}}`,
			discover.Facts{Architecture: "dbrx", Experts: 16, TopK: 4, Blocks: 40, Hidden: 6144, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true})}},
		{"hunyuan, a list", `{"model_type":"hunyuan_v1_moe","num_experts":64,"moe_topk":[8,8,8],"num_hidden_layers":3}`,
			discover.Facts{Architecture: "hunyuan_v1_moe", Experts: 64, TopK: 8, Blocks: 3, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true})}},
		{"ernie vl", `{"model_type":"ernie4_5_moe_vl","moe_num_experts":[64,64],"moe_k":6}`,
			discover.Facts{Architecture: "ernie4_5_moe_vl", Experts: 64, OtherExperts: 64, TopK: 6, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSoftmax, Normalised: true})}},
		{"layers of unequal count", `{"num_experts":[8,16],"num_experts_per_tok":2}`, discover.Facts{TopK: 2}},
		{"gpt-oss as published", `{"num_hidden_layers":24,"num_experts":32,"experts_per_token":4,"hidden_size":2880}`, discover.Facts{Experts: 32, TopK: 4, Blocks: 24, Hidden: 2880}},
		{"kimi-linear", `{"model_type":"kimi_linear","num_experts":256,"num_experts_per_token":8,"moe_router_activation_func":"sigmoid","num_expert_group":1,"topk_group":1,"moe_renormalize":true}`,
			discover.Facts{Architecture: "kimi_linear", Experts: 256, TopK: 8, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSigmoid, Normalised: true})}},
		{"gemma 4", `{"model_type":"gemma4","text_config":{"num_experts":128,"top_k_experts":8}}`, discover.Facts{Architecture: "gemma4", Experts: 128, TopK: 8}},
		{"mistral's params.json", `{"dim":7168,"n_layers":61,"moe":{"num_experts":128,"num_experts_per_tok":4}}`, discover.Facts{Hidden: 7168, Blocks: 61, Experts: 128, TopK: 4}},
		{"smallthinker", `{"moe_num_primary_experts":32,"moe_num_active_primary_experts":4,"moe_primary_router_apply_softmax":false}`,
			discover.Facts{Experts: 32, TopK: 4, Routing: rule(layout.RouterRule{Scoring: layout.ScoreSigmoid})}},
		{"no number of JSON", `{"architectures":["NemotronH"],"time_step_limit":[0.0,Infinity],"x":[-Infinity,NaN],"s":"a \"NaN","n_routed_experts":128}`, discover.Facts{Architecture: "NemotronH", Experts: 128}},
		{"null and own name", `{"_name_or_path":"org/Model-X","n_routed_experts":null,"num_experts":4}`, discover.Facts{Name: "Model-X", Experts: 4}},
		{"groups by the best", `{"n_group":8,"topk_group":3,"topk_method":"group_limited_greedy"}`,
			discover.Facts{Routing: discover.Routing{RouterRule: layout.RouterRule{Groups: 8, GroupsUsed: 3}, Unreadable: "its routers rank groups of experts by the best one (topk_method group_limited_greedy), which is not done here"}}},
		{"scoring unknown", `{"scoring_func":"tanh"}`,
			discover.Facts{Routing: discover.Routing{Unreadable: `scoring_func of config.json is "tanh", known are softmax, sigmoid and sqrtsoftplus`}}},
	} {
		got, err := factsOf("config.json", []byte(test.config))
		if err != nil || got != test.want {
			t.Errorf("%s: got  %+v, %v\nwant %+v", test.name, got, err, test.want)
		}
	}
}

func TestFactsErrors(t *testing.T) {
	for _, test := range []struct{ config, want string }{
		{"", "no JSON object"},
		{"[]", "no JSON object"},
		{`{"num_experts":}`, "no JSON object"},
		{`{"num_experts":-1}`, "num_experts is -1, want a whole number"},
		{`{"num_experts":1.5}`, "num_experts is 1.5"},
		{`{"num_experts":1e30}`, "num_experts is 1e30"},
		{`{"num_experts_per_tok":"8"}`, `num_experts_per_tok is "8"`},
		{`{"moe_topk":[8,null,{}]}`, "moe_topk is"},
		{`{"text_config":{"num_hidden_layers":true}}`, "num_hidden_layers is true"},
	} {
		_, err := factsOf("dir/config.json", []byte(test.config))
		var fe *layout.FormatError
		if !errors.Is(err, safetensors.ErrConfig) || !errors.As(err, &fe) || fe.Path != "dir/config.json" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want a FormatError that says %q", test.config, err, test.want)
		}
	}
}

func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"model_type":"x","text_config":{"moe":{"num_experts":[4,4]}},"n_group":2,"s":"\"NaN","y":NaN}`))
	f.Add([]byte(`{"moe_num_experts":[64,0],"thinker_config":{"thinker_config":{"thinker_config":{"thinker_config":{}}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		facts, err := factsOf("config.json", data)
		if err != nil && !errors.Is(err, safetensors.ErrConfig) {
			t.Fatal(err)
		}
		if err == nil && (facts.Experts < 0 || facts.OtherExperts < 0 || facts.TopK < 0 || facts.Blocks < 0 || facts.Predict < 0 || facts.Experts > layout.MaxRecords) {
			t.Fatalf("got %+v", facts)
		}
	})
}
