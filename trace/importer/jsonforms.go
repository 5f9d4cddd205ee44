package importer

// jsonForms are those of tools that write JSON or CSV, a row a layer and token or
// a token at a time, in order.
var jsonForms = []form{
	{
		Form:    Form{Name: "moe-beyond", Tool: "MoE-Beyond", Title: "CSV of prompts, a row a layer and token"},
		several: true,
		sniff:   sniffMoEBeyond,
		open:    openMoEBeyond,
	},
	{
		Form:    Form{Name: "gpt-oss-fingerprint", Tool: "GPT-OSS-MoE-ExpertFingerprinting", Title: "JSON of sequences with router_data"},
		several: true,
		sniff:   sniffFingerprint,
		open:    openFingerprint,
	},
	{
		Form:    Form{Name: "speculative-moe", Tool: "speculative-moe", Title: "JSON lines, a row a problem, layer and decoded token"},
		several: true,
		sniff: func(p *peek) bool {
			return has(p.keys(), "problem_id", "layer", "experts", "gating_probs", "token_idx")
		},
		open: openSpeculative,
	},
	{
		Form:    Form{Name: "vllm-moe-logger", Tool: "vLLM MoE loggers", Title: "JSON lines of vLLM's layers: a meta line, then a route a line"},
		several: true,
		sniff:   func(p *peek) bool { return has(p.keys(), "type", "layers_logged", "top_k") },
		open:    openLogger,
	},
	{
		Form:    Form{Name: "stratamoe", Tool: "StrataMoE", Title: "JSON RouterTrace v2, with or without its prompts' spans"},
		several: true,
		sniff:   sniffStrata,
		open:    openStrata,
	},
	{
		Form: Form{Name: "expertflow", Tool: "Expertflow", Title: "JSON lines of router events"},
		sniff: func(p *peek) bool {
			return has(p.keys(), "schema_version", "request_id", "forward_id", "layer_id", "selected_expert_ids")
		},
		open: openExpertflow,
	},
	{
		Form:    Form{Name: "moe-cache-lab", Tool: "moe-cache-lab", Title: "JSON lines: metadata, then a routing selection a line"},
		several: true,
		sniff:   sniffCacheLab,
		open:    openCacheLab,
	},
	{
		Form:    Form{Name: "megatron", Tool: "Megatron-LM RouterTracer", Title: "JSON lines, a step and layer each; a file a rank"},
		several: true,
		sniff:   sniffMegatron,
		open:    openMegatron,
	},
	{
		Form: Form{Name: "vllm-moe-trace", Tool: "vllm_moe_trace", Title: "JSON of passes, each with the ids of every gate call"},
		sniff: func(p *peek) bool {
			return p.hasPath("records", listStep, "model_name") && p.hasPath("records", listStep, "experts")
		},
		open: openVLLMTrace,
	},
}
