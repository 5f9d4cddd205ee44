// Package synth makes routing traces from a seed: what a policy or a forecast
// does where it is known what there is to learn.
//
//	uniform  every choice is equally likely; nothing can be learned
//	zipf     some experts are popular, draws are independent: only load can be learned
//	markov   what a layer chooses depends on the layer before, on the token before
//	         and, in the first layers, on the token's id: transitions can be learned
//	domains  as markov, but popularity and transitions change again and again, also
//	         within a sequence: what was learned over long goes stale
//
// A trace is made token by token as it is read, in memory that does not depend on
// its length. The same kind and options give the same trace on every machine:
// random numbers are those of PCG, and all that follows from them is computed in
// integers, from tables that are rounded to integers first.
//
// # How a row is drawn
//
// The experts of a row are drawn one after another; a draw of one that the row has
// already is repeated, and after 32 in vain it comes from the rest of the load. For uniform and zipf all draws come from the load. Each draw
// of markov and domains has one source:
//
//	with probability LayerPull  the group of the expert that the layer before drew first
//	with probability PastPull   half the time an expert that this layer chose for the
//	                            token before, else the group after that of the first one
//	otherwise                   the load
//
// A layer's experts are dealt to groups of about one and a half rows; each of a
// group is as likely. Groups of the same number belong together in all layers, but
// which experts they hold differs from layer to layer. In layer 0 the token's id
// stands for the layer before, in layer 1 for half of those draws, in layer 2 for a
// quarter: it leads to a group too.
//
// Gate weights are the softmax of logits that are spread evenly over 4, best
// first. Token ids follow a Zipf law, in every domain from another id on.
package synth
