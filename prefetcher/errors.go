package prefetcher

import (
	"errors"
	"fmt"

	"outrider/layout"
)

var (
	// ErrClosed is what waiters of a closed prefetcher get.
	ErrClosed = errors.New("prefetcher: closed")
	// ErrShort: a read ended early without an error of its own.
	ErrShort = errors.New("short read")
	// ErrSilent: a read claimed success, but left the buffer untouched.
	ErrSilent = errors.New("read claimed success without touching the buffer")
	// ErrNoAnswer: a device neither brings the bytes nor fails. The read may still
	// be in the kernel; its memory stays charged until it ends.
	ErrNoAnswer = errors.New("no answer")
	// ErrPanic: the file or the source panicked; the text holds what it said.
	ErrPanic = errors.New("panic while reading")
	// ErrPlacement: the source placed an expert where no slot or lane is.
	ErrPlacement = errors.New("source gives an impossible placement")
	// ErrChecksum: the bytes are not those that were written to the store.
	ErrChecksum = errors.New("checksum mismatch")
)

// ReadError is a read that failed twice, or got no answer.
type ReadError struct {
	Path          string
	Offset, Bytes int64 // of the block that failed
	ID            layout.ExpertID
	Err           error
	// First is the file of the first try and FirstErr what came of it, where the
	// second was made of a copy on another lane.
	First    string
	FirstErr error
}

// Error names the file, the place and the expert.
func (e *ReadError) Error() string {
	tried := "tried twice; check the drive"
	switch {
	case errors.Is(e.Err, ErrNoAnswer):
		tried = "check the drive and its connection"
	case e.FirstErr != nil:
		tried = fmt.Sprintf("a copy, after %s: %v; check both drives", e.First, e.FirstErr)
	}
	return fmt.Sprintf("prefetcher: read %v: %s at offset %d, %d bytes: %v (%s)", e.ID, e.Path, e.Offset, e.Bytes, e.Err, tried)
}

// Unwrap is the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// ChecksumError is an expert whose bytes were wrong in two reads. It is
// ErrChecksum to errors.Is.
type ChecksumError struct {
	Path       string // the lane on which the projection starts
	Offset     int64  // of the projection on it
	ID         layout.ExpertID
	Projection string
	Got, Want  uint32 // CRC-32C
}

// Error names the file, the place, the expert and the projection.
func (e *ChecksumError) Error() string {
	return fmt.Sprintf("prefetcher: %v, projection %s: %s at offset %d: CRC-32C is %08x, want %08x (read twice; rebuild the store or replace the drive)",
		e.ID, e.Projection, e.Path, e.Offset, e.Got, e.Want)
}

// Unwrap is ErrChecksum.
func (e *ChecksumError) Unwrap() error { return ErrChecksum }
