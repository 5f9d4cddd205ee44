package router

// The feature columns of the online predictor. Each head uses a prefix of
// them, so they are ordered by how early a feature is known.
const (
	columnOne        = iota // 1
	columnFast0             // decayed use at each of timeScales
	columnFast1             //
	columnFast2             //
	columnFast3             //
	columnLongRun           // log odds of use over all sequences
	columnSequence          // log odds of use in this sequence
	columnLast              // 1 if the last token used the expert
	columnGate              // its gate weight then, times top-k
	columnAgainRatio        // evidence of what the last token used in this layer
	columnLikeRatio         // evidence of the passes that went most like the last one
	columnLikeBest          //
	columnLikeFuture        // and of what came after those
	keepColumns             // so many are known a whole pass ahead
)

const (
	columnTokenRatio   = keepColumns + iota // evidence of the tokens of the pass
	columnTokenBest                         //
	columnGramRatio                         // evidence of the token and the one before it, together
	columnGramBest                          //
	columnOpeningRatio                      // evidence of the first layer's choice as a whole
	columnOpeningBest                       //
	farColumns                              // so many are known some layers ahead
)

const (
	columnSkipRatio = farColumns + iota // evidence of each expert two layers before
	skipColumns                         // so many are known two layers ahead
)

const (
	columnNearRatio = skipColumns + iota // evidence of each expert of the layer before
	columnPairRatio                      // evidence of its two strongest experts together, or of the token and the strongest
	columnPairBest                       //
	columnPassRatio                      // evidence of the passes that went most like this one so far
	columnPassBest                       //
	nearColumns                          // all
)

// timeScales are the tokens after which a use counts 1/e, about.
var timeScales = [4]float32{1.5, 3, 12, 65}

// startWeights is where learning starts: every feature counts a little in the
// direction that it must have for any model.
var startWeights = [nearColumns]float32{
	columnOne:          -0.5,
	columnFast0:        0.3,
	columnFast1:        0.3,
	columnFast2:        0.5,
	columnFast3:        0.3,
	columnLongRun:      0.4,
	columnSequence:     0.4,
	columnLast:         0.1,
	columnGate:         0.1,
	columnAgainRatio:   0.25,
	columnLikeRatio:    0.2,
	columnLikeBest:     0.2,
	columnLikeFuture:   0.2,
	columnTokenRatio:   0.5,
	columnTokenBest:    0.5,
	columnGramRatio:    0.3,
	columnGramBest:     0.3,
	columnOpeningRatio: 0.3,
	columnOpeningBest:  0.3,
	columnSkipRatio:    0.15,
	columnNearRatio:    0.25,
	columnPairRatio:    0.3,
	columnPairBest:     0.3,
	columnPassRatio:    0.3,
	columnPassBest:     0.3,
}

// The heads of the online predictor, by how far ahead they look.
const (
	headKeep  = iota // a whole pass
	headFar          // the token or the first layer of this pass is known
	headSkip         // the layer two before is known
	headNear         // the layer before is known
	headCount        //
)

// headColumns is how many columns each head uses.
var headColumns = [headCount]int{keepColumns, farColumns, skipColumns, nearColumns}
