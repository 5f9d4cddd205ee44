package importer

// textForms are those of llama.cpp and of what was made from it.
var textForms = []form{
	{
		Form:  Form{Name: formMoETrace, Tool: "llama.cpp moe-trace", Title: "CSV: a layer and an expert id a line"},
		sniff: sniffMoETrace, open: openMoETrace,
	},
	{
		Form:  Form{Name: formEvalCallback, Tool: "llama.cpp eval-callback", Title: "text: tensors of the graph with their values"},
		sniff: sniffEvalCallback, open: openEvalCallback,
	},
	{
		Form:  Form{Name: formMoERoutes, Tool: "moe-prefetch (patched llama.cpp)", Title: "text: a route a line"},
		sniff: sniffMoERoutes, open: openMoERoutes,
	},
	{
		Form:  Form{Name: formPrefetchLog, Tool: "llama-prefetch.cpp tracer", Title: "log lines [EXPERT-TRACE]"},
		sniff: sniffPrefetchLog, open: openPrefetchLog,
	},
	{
		Form:  Form{Name: formPrefetchStats, Tool: "llama-prefetch.cpp tracer", Title: "JSON: activations of each expert", Histogram: true},
		sniff: sniffPrefetchStats, open: openPrefetchStats,
	},
	{
		Form:  Form{Name: formLegacyImatrix, Tool: "llama.cpp imatrix", Title: "legacy .dat importance matrix (refused: counts are lost)", Histogram: true},
		sniff: sniffLegacyImatrix, open: openLegacyImatrix,
	},
}
