// Package learned forecasts with a small network that was trained beforehand, over
// what router.Online learns as it runs. Package learned/train makes the network;
// this one reads it and runs it, with nothing but the standard library.
//
//	choices ──► router.Online ──► features ─┐
//	                                        ├──► network ──► p
//	choices ──► Recent ──► embedded sets ───┘
//
// # Network
//
// For one layer, each expert has these inputs:
//
//	columns    what the online forecast is made of (router.Featured), the last one
//	           its log odds
//	sharpness  the mean of those log odds over the experts: how sure it is
//	horizon    which of the three below holds, as three inputs of 1 or 0
//	before     the mean embedding of what the last token chose in the layer before, times
//	           the expert's own embedding
//	again      the same of what the last token chose in this layer
//
// Columns and sharpness are centred and scaled as they were spread in training.
// A column that never moved there carries no weight. The log odds are
//
//	z = skip · inputs + output · relu(hidden · inputs)
//
// A file has all weights for each layer; package train makes hidden, skip and output
// the same in all of them. Training starts where z is the online forecast.
//
// # Horizon
//
//	keep   nothing of the pass in question is known
//	ahead  its token is, or a layer, but not the layer before
//	near   the layer before was observed in this pass
//
// The network was trained on passes of one token. A pass of several, such as a
// chunk of a prompt, is forecast by the online predictor alone.
//
// # Blend
//
// The network was trained on other text, maybe on another version of the model, and
// over an online forecast of another age. So the log odds in use are
//
//	online + w · (z − online)
//
// with one weight w a layer, shared by all sequences: 1 at first, 0 to 1.5, moved
// after each token by a step of Newton's on the log loss of the forecast that was asked
// for latest. A network that does harm fades out within some hundred tokens. The
// weights are saved with the online predictor's state.
//
// # File, version 1
//
// Little-endian. The length follows from the header; nothing follows the end.
//
//	magic 93 "ORLEARN" | version u32
//	feature version u32 | columns u32       of router.Featured: others are refused
//	layers u32 | experts u32 | top-k u32
//	embedding u32 | hidden u32              dimensions
//	name u16 length, UTF-8                  of the model
//	layer ids layers × u32                  block number of each layer
//	centre, scale                           (columns + 1) × f32 each
//	for each layer, f32:
//	  hidden [hidden][inputs]               inputs as in the list above
//	  skip   [inputs]
//	  output [hidden]
//	  before, again, target [experts][embedding]
//	CRC-32C u32 of all before
//
// Numbers are finite and at most 1e6 in size, scales at least 1e-6, so that no
// forecast can overflow.
//
// # Ownership
//
// A Model does not change once it is made, and may be shared. A Predictor may be
// used from any goroutine, its histories from one at a time each. Recent and Scratch
// are for one goroutine at a time.
package learned
