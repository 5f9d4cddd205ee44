package torchfile

import (
	"errors"
	"fmt"
)

var (
	// ErrNotTorch: no zip file with a pickle as torch.save writes it.
	ErrNotTorch = errors.New("not a file of torch.save")
	// ErrLegacy: written by PyTorch before 1.6, or with its old serialisation.
	ErrLegacy = errors.New("an old file of torch.save that is no zip")
	// ErrRefused: the pickle holds more than plain containers, numbers, texts and tensors.
	ErrRefused = errors.New("refused to unpickle")
	// ErrDamaged: the file contradicts itself, or exceeds a limit.
	ErrDamaged = errors.New("damaged file of torch.save")
)

// Error says what is wrong and where. It unwraps to one of the package's
// sentinels.
type Error struct {
	Entry  string // of the zip file; "" for the file itself
	Offset int64  // in the entry
	Reason string
	Err    error
}

// Error names the entry, the place and the reason.
func (e *Error) Error() string {
	if e.Entry == "" {
		return fmt.Sprintf("%v: %s", e.Err, e.Reason)
	}
	return fmt.Sprintf("%v: %s, byte %d: %s", e.Err, e.Entry, e.Offset, e.Reason)
}

// Unwrap gives the sentinel.
func (e *Error) Unwrap() error { return e.Err }
