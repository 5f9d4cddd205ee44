package importer

// binaryForms are arrays and binary logs.
var binaryForms = []form{
	{
		Form:    Form{Name: formVLLMNpy, Tool: "vLLM", Title: "NumPy array of a request's routed experts"},
		several: true, sniff: sniffVLLMNpy, open: openVLLMNpy,
	},
	{
		Form:    Form{Name: formSGLangRequest, Tool: "SGLang", Title: "routed_experts of requests, base64 or JSON"},
		several: true, sniff: sniffSGLangRequest, open: openSGLangRequest,
	},
	{
		Form:  Form{Name: formSGLangRecorder, Tool: "SGLang", Title: "expert distribution recorder, mode per_token (.pt)"},
		sniff: sniffSGLangRecorder, open: openSGLangRecorder,
	},
	{
		Form:  Form{Name: formSGLangCounts, Tool: "SGLang, KTransformers", Title: "expert distribution recorder, modes stat, stat_approx and per_pass (.pt)", Histogram: true},
		sniff: sniffSGLangCounts, open: openSGLangCounts,
	},
	{
		Form:    Form{Name: formCountsNpy, Tool: "MoE-Infinity, EPLB and others", Title: "NumPy array of counts by layer and expert", Histogram: true},
		several: true, sniff: sniffCountsNpy, open: openCountsNpy,
	},
	{
		Form:  Form{Name: formMbolt, Tool: "mbolt (llama.cpp)", Title: "binary trace"},
		sniff: sniffMbolt, open: openMbolt,
	},
	{
		Form:  Form{Name: formFlashMoE, Tool: "flash-moe", Title: "binary routing log (--collect-routing)"},
		sniff: sniffFlashMoE, open: openFlashMoE,
	},
	{
		Form:    Form{Name: formTRTCounts, Tool: "TensorRT-LLM", Title: "expert statistic, a folder", Histogram: true},
		several: true, sniff: sniffTRTCounts, open: openTRTCounts,
	},
	{
		Form:    Form{Name: formTRTRaw, Tool: "TensorRT-LLM", Title: "expert statistic with the ids of each token, a folder"},
		several: true, sniff: sniffTRTRaw, open: openTRTRaw,
	},
}
