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
	// ErrFilling: a fill of the expert is in flight already, or one that was
	// abandoned still holds the expert's fixed address. Options.Freed is called
	// when that ended.
	ErrFilling = errors.New("experts: expert is being filled already")
	// ErrUnknownExpert: the shape has no such expert.
	ErrUnknownExpert = errors.New("experts: the model has no such expert")
	// ErrClosed: the cache was closed.
	ErrClosed = errors.New("experts: cache is closed")
	// ErrReleased: the lease was released before, or was never a lease.
	ErrReleased = errors.New("experts: lease was released already")
	// ErrFillEnded: the fill was committed, aborted, swapped or abandoned before.
	ErrFillEnded = errors.New("experts: fill was ended already")
	// ErrFixed: the expert has one address (FixedMemory), and so no room for a
	// second buffer beside the first.
	ErrFixed = errors.New("experts: a slot at a fixed address can have no second buffer")
	// ErrParts: the parts handed to Commit do not lie in the slot.
	ErrParts = errors.New("experts: parts do not lie in the slot")
	// ErrLockLimit: the process may not lock as much memory as Options.Lock asks
	// for. The text around it names the need, the limit and the remedy.
	ErrLockLimit = errors.New("the limit on locked memory is too low")
	// ErrNoPressure: the system tells nothing of memory pressure.
	ErrNoPressure = errors.New("experts: the system tells nothing of memory pressure")
	// ErrNoAutoBudget: the system does not tell how much memory there is.
	ErrNoAutoBudget = errors.New("experts: cannot find a budget by itself; give one in bytes")
)
