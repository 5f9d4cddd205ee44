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
	// ErrRoomHeld is returned where a use waits for memory that only uses of
	// waiting sessions hold, its own among them: release a session's use before
	// waiting for its next, or raise the budget.
	ErrRoomHeld = errors.New("runtime: the memory is held by uses whose callers wait themselves")
	// ErrNotStacked is returned where the experts of a layer do not have their
	// projections at the same places, so that these are no stacked tensors.
	ErrNotStacked = errors.New("the projections are no stacked tensors")
)
