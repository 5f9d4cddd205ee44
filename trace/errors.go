package trace

import (
	"errors"
	"fmt"
	"io"
)

var (
	// ErrNotTrace says that a file's beginning is that of none of the forms
	// this package reads.
	ErrNotTrace = errors.New("not a trace")

	// ErrVersion says that a file is ours, but of another format version.
	ErrVersion = errors.New("unsupported format version")

	// ErrTorn says that a trace stops before its end: its writer was killed, or
	// the file was cut. All whole batches before the tear were delivered. The
	// error in hand is a *TornError.
	ErrTorn = errors.New("torn trace")

	// ErrActivation says that an activation does not fit the header of the
	// trace it was to join. Nothing of it was kept; the trace goes on.
	ErrActivation = errors.New("activation does not fit the trace")

	// ErrClosed is the answer of a closed writer.
	ErrClosed = errors.New("trace is closed")
)

// CorruptError says where and how a trace or a history is damaged.
type CorruptError struct {
	Path   string // empty where the bytes came from no named file
	Line   int    // from 1, for JSON lines; otherwise 0
	Offset int64  // in bytes, of the uncompressed content; for JSON lines that of the line
	Reason string
}

// Error names the file, the place, and what is wrong there.
func (e *CorruptError) Error() string {
	place := fmt.Sprintf("byte %d", e.Offset)
	if e.Line > 0 {
		place = fmt.Sprintf("line %d", e.Line)
	}
	return fmt.Sprintf("trace: %sdamaged at %s: %s", named(e.Path), place, e.Reason)
}

// TornError is the ErrTorn of one trace.
type TornError struct {
	Path   string
	Tokens int64 // tokens delivered before the tear
}

// Error says how many tokens were kept.
func (e *TornError) Error() string {
	return fmt.Sprintf("trace: %sthe file ends before its end mark; the %d tokens before the tear were kept", named(e.Path), e.Tokens)
}

// Unwrap makes errors.Is(err, ErrTorn) true.
func (e *TornError) Unwrap() error { return ErrTorn }

// sourceError turns what an underlying reader returned in the middle of a trace
// into this package's words. A compressed file that was cut off is torn too.
func sourceError(err error, tokens int64) error {
	var corrupt *CorruptError
	switch {
	case errors.Is(err, io.EOF), errors.As(err, &corrupt):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &TornError{Tokens: tokens}
	}
	return fmt.Errorf("trace: read: %w", err)
}

func named(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// withPath writes the file's name into an error of this package, which was
// made by a reader that did not know it.
func withPath(err error, path string) error {
	var corrupt *CorruptError
	var torn *TornError
	switch {
	case err == nil || path == "":
		return err
	case errors.As(err, &corrupt):
		corrupt.Path = path
		return err
	case errors.As(err, &torn):
		torn.Path = path
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}
