package iobench

import "errors"

// Errors that callers tell apart with errors.Is.
var (
	// ErrTooSmall: there would not be enough experts to read. The text names what is
	// needed.
	ErrTooSmall = errors.New("iobench: too small")
	// ErrFio: fio could not be run, or answered something else than expected.
	ErrFio = errors.New("iobench: fio")
)
