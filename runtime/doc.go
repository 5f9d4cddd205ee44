// Package runtime is what a model runner embeds: the router's choices go in,
// read-only expert weights come out, and a mixture-of-experts model runs in
// less memory than its weights need.
//
//	rt, err := runtime.Open(ctx, "model.outrider", runtime.Options{BudgetBytes: 4 << 30})
//	s := rt.NewSession()                           // one sequence
//	s.Step(trace.Decode, []int32{token})           // optional: the token, before layer 0
//	s.Lookahead(layer, hidden)                     // optional: what the layer's router sees, one token
//	use, err := s.Use(ctx, layer, choices)         // what the router of a layer chose
//	for ex, err := range use.Ready(ctx) {          // experts in the order they arrive
//		up, _ := ex.Projection("up")           // up.Data: valid until ex or use is released
//	}
//	use.Release()
//
// # What happens behind Use
//
//	runner            Use ──▶ pinned at once if in memory ─────────────▶ Ready
//	goroutine          │  └─▶ else demanded ─────────┐                    ▲
//	                   ▼                             ▼                    │ lease
//	forecaster       observe, score,           queue ──▶ workers ──▶ slots of the
//	goroutine        keep values,              demand first   read    cache (budget)
//	                 likely experts ─────────▶ then forecasts
//
// The runner's goroutine only looks up, pins and queues. Learning and scoring
// happen on the forecaster's goroutine, reads on the prefetcher's workers; a
// forecaster that falls behind drops observations instead of holding anybody
// up. What is read, kept or dropped never changes what a runner computes: an
// expert's bytes are the same whether they were in memory, read ahead or
// demanded.
//
// # Hints
//
// A runner that knows the hidden state knows more of the layers to come than
// their history tells. Session.Hint passes what it saw of a later router;
// Session.Lookahead lets the runtime apply the later routers itself, with the
// matrices of the store. Both are joined with the forecast from history as far as
// they prove worth it, and neither is needed.
//
// # Speculative decoding
//
// Session.Rollback drops the last tokens of a sequence, and what they made it
// expect.
//
// # Memory
//
// The budget counts every byte of expert memory: resident, leased and being
// read. A use is lent room for all its experts before it holds any, in the order
// of asking, so that uses never wait for each other in a circle; where callers
// that hold memory wait for more, they get what is left, or ErrRoomHeld. A pass
// that needs more experts than the budget holds is served in waves: the runner
// releases each expert when it is computed, and the next is read into its place.
//
//	SetBudget, pressure ──▶ room: what uses may pin    changes at once
//	                        cache: what memory holds   shrinks when the room that
//	                                                   was lent before fits in it
//
// SetBudget changes the budget at any time. Unless it is fixed, the runtime also
// watches the system's memory pressure and gives way to it (experts.Pressure).
// Beside the budget, Lookahead loads the router of each layer as it is first
// needed: experts × width float32.
//
// # Concurrency
//
// A Runtime is safe for concurrent use; a Session and the Uses it makes belong
// to one goroutine at a time. Open starts the goroutines, Close joins them: the
// forecaster, one that tends the budget, and the prefetcher's workers. A caller's
// goroutine reads nothing.
//
// Locks are leaves: no lock of this package is held while another package is
// called, but for that of Options.Order while it is told what was chosen, and
// that of the budget while the cache is set to it. The room's lock may be taken
// under the budget's.
package runtime
