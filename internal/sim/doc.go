// Package sim replays a routing trace against cache policies and forecasts in
// virtual time: exact, deterministic, without a drive or a model.
//
// # Timing model
//
// One drive reads one expert at a time. A layer computes for 1 unit of time, the
// share Attention of it before its routing is known; an expert reads in
// Ratio ÷ top-k units, so Ratio is the time to read all experts of one layer
// over the time to compute it.
//
//	            routing known        all experts here
//	                 │                      │
//	── attention ────┤···· exposed stall ···├──── experts ────┐ next layer's attention
//	drive: ahead     │ demand reads         │ reads ahead ……… │ ……
//
// Demand reads go before speculative ones, but a read that was started is
// finished first. After the routing of a layer is known, the forecast of the
// next Horizon layers replaces all speculative reads that were not started; if
// the token of a pass is known, they are forecast again when the pass begins.
//
// The cache is one for all layers. Tokens are decoded one at a time in trace
// order, whatever their phase was, from an empty cache and an untrained
// forecast: cold start counts.
//
// # Who decides
//
// Residency and victims are experts.Table, admission and the governor are those
// of package prefetcher, keep values and forecasts those of package router: the
// code that the runtime calls. Only time is simulated.
package sim
