package importer

// histogramForms are published counts.
var histogramForms = []form{
	{
		Form:  Form{Name: formImatrix, Tool: "llama.cpp imatrix", Title: "GGUF importance matrix with counts of each expert", Histogram: true},
		sniff: sniffImatrix, open: openImatrix,
	},
	{
		Form:  Form{Name: formCollection, Tool: "collections of published counts", Title: "JSON histogram in its publisher's units", Histogram: true},
		sniff: sniffCollection, open: openCollection,
	},
	{
		Form:  Form{Name: formMboltHeat, Tool: "mbolt", Title: "JSON co-activation profile", Histogram: true},
		sniff: sniffMboltHeat, open: openMboltHeat,
	},
	{
		Form:  Form{Name: formOlmoeCounts, Tool: "OLMoE study", Title: "JSON counts for each model and domain", Histogram: true},
		sniff: sniffOlmoeCounts, open: openOlmoeCounts,
	},
	{
		Form:  Form{Name: formFlashProfile, Tool: "flash-moe (mlx-moe)", Title: "JSON profile of prompts using each expert", Histogram: true},
		sniff: sniffFlashProfile, open: openFlashProfile,
	},
	{
		Form:  Form{Name: formLocality, Tool: "Expertflow", Title: "JSON routing-locality", Histogram: true},
		sniff: sniffLocality, open: openLocality,
	},
	{
		Form: Form{Name: formSwitchCSV, Tool: "sacs-epfl/moe-inference", Title: "CSV of tokens per expert, a file a layer", Histogram: true}, several: true,
		sniff: sniffSwitchCSV, open: openSwitchCSV,
	},
	{
		Form:  Form{Name: formSubjects, Tool: "mixtral-vis-moe", Title: "JSON shares of tokens for each subject", Histogram: true},
		sniff: sniffSubjects, open: openSubjects,
	},
}
