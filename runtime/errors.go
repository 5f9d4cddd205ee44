package runtime

import "errors"

// Errors that callers tell apart with errors.Is.
var (
	// ErrClosed is returned by every call on a closed runtime.
	ErrClosed = errors.New("runtime: closed")
	// ErrReleased is returned by calls on a use that was released.
	ErrReleased = errors.New("runtime: the use was released")
	// ErrNeedsWaves is returned where a pass uses more experts than the budget
	// holds at once and the caller holds all of them: release each expert when
	// it is computed, or raise the budget.
	ErrNeedsWaves = errors.New("runtime: the pass uses more experts than the budget holds")
)
