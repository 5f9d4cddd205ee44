// Package sim replays a routing trace against cache policies and forecasts in
// virtual time: exact, deterministic, without a drive or a model.
//
// # Timing model
//
// A layer of a pass computes for 1 unit of time, the share Attention of it before
// its routing is known. Without Options.Drives one drive reads one expert at a time
// and takes Ratio ÷ top-k units for it, so Ratio is the time to read all experts of
// one layer of one token over the time to compute it. With drives, each reads one
// piece at a time (placement), and the unit follows from the mean time of an expert
// read alone.
//
//	            routing known        all experts here
//	                 │                      │
//	── attention ────┤···· exposed stall ···├──── experts ────┐ next layer's attention
//	drives: ahead    │ demand reads         │ reads ahead ……… │ ……
//
// Demand reads go before speculative ones, but a read that was started is
// finished first. When a pass begins, and when the routing of a layer is known, the
// forecast of the next Horizon layers replaces all speculative reads that were not
// started.
//
// The cache is one for all layers, counted in experts. Passes are those of package
// passes: the tokens one by one, in batches or in chunks. A layer that needs more
// experts than fit has them in waves, each of which computes its share. The cache
// is empty at first and the forecast untrained, unless Options.Warm lets it learn from
// the beginning of the trace: cold start counts.
//
// # Who decides
//
// Residency and victims are experts.Table; keep values, orders and forecasts those
// of package router; what is wanted and admitted, and the governor, those of package
// prefetcher: the code that the runtime calls. Only time is simulated. Package replay
// tests that the runtime, over a modelled drive, stalls as long.
//
// The run "optimum" is a bound, not a policy: it takes the experts of a layer one by
// one, and one that had its turn may go for the next.
package sim
