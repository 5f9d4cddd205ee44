package sim

// Result is one run's figures.
type Result struct {
	Run          string  `json:"run"`
	CacheShare   float64 `json:"cache_share"`
	CacheExperts int     `json:"cache_experts"`
	Ratio        float64 `json:"ratio"`
	// Hits is the share of demanded experts that were in memory when the
	// layer's routing became known. In a batch an expert counts once a pass.
	Hits                     float64 `json:"hits"`
	DemandReadsPerToken      float64 `json:"demand_reads_per_token"`
	SpeculativeReadsPerToken float64 `json:"speculative_reads_per_token"`
	// Speculative reads that were used in time, that a demand had to wait
	// for, that were dropped unused, and experts thrown out by one and demanded
	// before they were read again. What is unused at the end is none of these.
	Useful    int64 `json:"useful"`
	Late      int64 `json:"late"`
	Wasted    int64 `json:"wasted"`
	Displaced int64 `json:"displaced"`
	// StallOverCompute is the time layers waited for experts over the time
	// they computed.
	StallOverCompute float64 `json:"stall_over_compute"`
	// LayerCompleteRate is the share of layer executions that had all experts
	// in memory when their routing became known.
	LayerCompleteRate float64 `json:"layer_complete_rate"`
	// RecallAtK of the next layer, over all but the first layer; 0 for runs
	// without a forecast.
	RecallAtK float64 `json:"recall_at_k"`
	Tokens    int     `json:"tokens"`
	Passes    int     `json:"passes"`
	// SpeculationOffShare is the share of layer executions in which the governor
	// had speculation switched off; 0 for runs without it.
	SpeculationOffShare float64 `json:"speculation_off_share,omitempty"`
}

func (e *engine) result() *Result {
	s := e.table.Stats()
	tokens, layers := float64(e.schedule.Tokens()), float64(e.played*e.shape.Layers)
	r := &Result{
		Run: e.policy.Name, CacheShare: float64(e.capacity) / float64(e.shape.Count()), CacheExperts: e.capacity, Ratio: e.opts.Ratio,
		Hits:                     float64(e.hits) / float64(max(e.demanded, 1)),
		DemandReadsPerToken:      float64(e.reads) / tokens,
		SpeculativeReadsPerToken: float64(e.ahead) / tokens,
		Useful:                   s.Useful, Late: e.late, Wasted: s.Wasted, Displaced: s.Displaced,
		StallOverCompute: e.stall / layers, LayerCompleteRate: float64(e.complete) / layers,
		Tokens: e.schedule.Tokens(), Passes: e.played, SpeculationOffShare: float64(e.off) / layers,
	}
	if e.forecast != nil && e.forecast.scored > 0 {
		r.RecallAtK = e.forecast.recall / float64(e.forecast.scored)
	}
	return r
}
