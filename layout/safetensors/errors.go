package safetensors

import (
	"errors"
	"fmt"
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
type FormatError struct {
	Path   string
	Offset int64 // in bytes from the start of Path; -1 where no place applies
	Reason string
	Err    error
}

// Error names the file, the kind of fault, the place and the reason.
func (e *FormatError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("safetensors: %s: %v: %s", e.Path, e.Err, e.Reason)
	}
	return fmt.Sprintf("safetensors: %s: %v: at byte %d: %s", e.Path, e.Err, e.Offset, e.Reason)
}

// Unwrap gives the sentinel.
func (e *FormatError) Unwrap() error { return e.Err }
