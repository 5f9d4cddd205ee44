package safetensors

import (
	"errors"

	"outrider/layout"
)

// What can be wrong with a file; test with errors.Is. All but ErrNoTensor
// arrive inside a *FormatError.
var (
	// ErrNotSafetensors: the file does not start as one of this form.
	ErrNotSafetensors = errors.New("not a safetensors file")
	// ErrTruncated: the file ends before what its header promises; most often
	// an unfinished download.
	ErrTruncated = errors.New("file is truncated")
	// ErrDamaged: the header contradicts itself or breaks the format's rules.
	ErrDamaged = errors.New("damaged safetensors header")
	// ErrNoTensor: the file has no tensor of that name.
	ErrNoTensor = errors.New("no such tensor")
)

// FormatError says which file is wrong, where, and how. It unwraps to one of
// the package's sentinels.
type FormatError = layout.FormatError
