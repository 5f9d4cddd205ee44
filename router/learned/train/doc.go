// Package train fits the network of package learned to routing traces, with
// Gorgonia. It is for a training command: nothing that a model runner embeds imports it.
//
//	traces ─► split by sequence ─► replay through router.Online ─► examples ─► Adam ─► learned.Model
//	                                                                  held out ─► when to stop
//
// An example is one layer of one token: what the forecast would have been made of, at one
// of three times (before the pass, some layers ahead, right after the layer before),
// and what the router then chose. Half the examples are of the last kind.
//
// A predictor in use starts from nothing, so the network must do well over a cold
// online predictor as well as over a warm one. The training tokens are therefore
// replayed twice: in lives, each over a fresh online predictor and twice as long as
// the one before it, and all over one. The held-out tokens are replayed after that,
// and once more over a fresh one.
//
// Held-out sequences are never trained on; they decide which epoch is kept, so that
// what the report says of them flatters the network a little. For an honest
// comparison hold back traces of your own and see outrider evaluate.
package train
