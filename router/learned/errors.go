package learned

import "errors"

var (
	// ErrNotModel says that a file's beginning is not that of a learned forecast.
	ErrNotModel = errors.New("not a learned forecast")
	// ErrVersion says that a file is ours, but of another format version.
	ErrVersion = errors.New("unsupported format version")
	// ErrFeatures says that a network was trained on other features than this
	// program computes. It must be trained anew.
	ErrFeatures = errors.New("trained on other features")
	// ErrDamaged says that a file is cut or changed, or holds what no training makes.
	ErrDamaged = errors.New("damaged learned forecast")
	// ErrParameters says that parameters do not fit a model's dimensions.
	ErrParameters = errors.New("parameters do not fit")
)
