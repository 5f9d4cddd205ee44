package router

import "errors"

var (
	// ErrUnknownPredictor: New was asked for a name that no predictor has.
	ErrUnknownPredictor = errors.New("unknown predictor")
	// ErrOption: an option is out of range.
	ErrOption = errors.New("option out of range")
	// ErrShape: a trace is of another shape, or a shape is too large for the
	// predictor.
	ErrShape = errors.New("shape does not match")
)
