package router

// FeatureVersion changes whenever a feature's meaning or place does, so that
// what was trained on other features is refused.
const FeatureVersion = 2

// Featured is a History that shows what its forecast is made of: those of Online
// are. A network trained on these features (see package learned) forecasts from
// the same view of the past.
type Featured interface {
	History
	// Features writes what the forecast of a layer's next execution is made of,
	// as [column][expert] float32: FeatureColumns columns of one entry an expert.
	// Columns of what is not known yet (say the choice of the layer before) are
	// zero. The last column is the forecast itself, as log odds. A layer that does
	// not exist, or a dst of another length, is all zero.
	Features(layer int, dst []float32)
}

// FeatureColumns is how many columns Features writes.
func FeatureColumns() int { return nearColumns + 1 }

// Features writes the columns that Score would weigh.
func (h *onlineHistory) Features(layer int, dst []float32) {
	clear(dst)
	n := h.online.shape.Experts
	if layer < 0 || layer >= len(h.layers) || len(dst) != FeatureColumns()*n {
		return
	}
	odds := dst[nearColumns*n:]
	h.Score(layer, odds)
	copy(odds, h.scratch.odds)
	copy(dst, h.scratch.columns[:headColumns[h.scratch.filled.head]*n])
}
