package overlap

import "errors"

var (
	// ErrUnavailable: the kernel does not let this process see to its own page faults.
	ErrUnavailable = errors.New("experts cannot appear while llama.cpp computes")
	// ErrUnbidden: an expert was read that nobody brings, or a part of one that has no
	// bytes.
	ErrUnbidden = errors.New("weights were read that the router has not chosen")
)
