package experts

import "errors"

// Errors that callers tell apart with errors.Is. Those of Begin are returned
// bare, since refusing a speculative read is an everyday event that must not
// allocate.
var (
	// ErrBelowFloor: the budget is smaller than what one layer of one token
	// needs. The text around it names the bytes needed.
	ErrBelowFloor = errors.New("budget is below the floor")
	// ErrNoRoom: everything that would have to go is pinned, in flight, or on
	// its way back to the system. Try again when Options.Freed is called.
	ErrNoRoom = errors.New("experts: no room: all memory is pinned or in flight")
	// ErrNotWorth: a speculative read was refused, since it would throw out
	// an expert that is expected no later than its own, or was just used.
	ErrNotWorth = errors.New("experts: speculative read is not worth its room")
	// ErrResident: the expert is in memory already.
	ErrResident = errors.New("experts: expert is resident already")
	// ErrFilling: a fill of the expert is in flight already.
	ErrFilling = errors.New("experts: expert is being filled already")
	// ErrUnknownExpert: the shape has no such expert.
	ErrUnknownExpert = errors.New("experts: the model has no such expert")
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("experts: cache is closed")
	// ErrReleased: the lease was released before, or was never a lease.
	ErrReleased = errors.New("experts: lease was released already")
	// ErrFillEnded: the fill was committed or aborted before.
	ErrFillEnded = errors.New("experts: fill was committed or aborted already")
	// ErrParts: the parts handed to Commit do not lie in the slot.
	ErrParts = errors.New("experts: parts do not lie in the slot")
	// ErrNoAutoBudget: the system does not tell how much memory there is.
	ErrNoAutoBudget = errors.New("experts: cannot find a budget by itself; give one in bytes")
)
