// Package evaluate measures forecasts on a routing trace: how well they foresee
// the router (router.Evaluate), and what they would save a cache that keeps by
// them.
//
// Tokens are replayed one by one, each as a pass of its own, in the order of the
// trace; predictors learn as they go.
//
// # The cache
//
// It is one for all layers, counted in experts, empty at first, and reads on demand
// only. Which expert goes is decided by the very forecast that is measured, through
// router.Sequences, router.Keeper and experts.Table, as in the runtime and in package
// sim with a horizon of one layer: hits are those of the same run there.
//
// Right before the routing of a layer is known, the top-k experts that are not in
// memory and are scored highest are the guesses (of equal scores, the lower index).
// A miss is an expert that is chosen and not in memory:
//
//	miss coverage   the share of misses that were among the guesses
//	layer complete  the share of layer executions whose chosen experts all were in
//	                memory or among the guesses
//
// Guesses are not read, so they neither help nor harm what comes after: what reading
// ahead gains and costs is for package sim to say.
package evaluate
