package router

import (
	"errors"
	"fmt"
)

var (
	// ErrNotSaved: the predictor has nothing that can be saved; it is no Saver.
	ErrNotSaved = errors.New("predictor cannot be saved")
	// ErrNotState: the bytes are not a saved forecast.
	ErrNotState = errors.New("not a saved forecast")
	// ErrStateVersion: a saved forecast of another version of the format, or of
	// the predictor.
	ErrStateVersion = errors.New("unsupported version of a saved forecast")
)

// CorruptError says where a saved forecast is damaged. One that was cut off, or
// that holds numbers which no predictor can have learned, is damaged too.
type CorruptError struct {
	Offset int64  // in bytes, of the part that is damaged
	Part   string // what the part holds; empty where that is not known
	Reason string
}

// Error names the place, and what is wrong there.
func (e *CorruptError) Error() string {
	if e.Part == "" {
		return fmt.Sprintf("router: saved forecast is damaged at byte %d: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("router: saved forecast is damaged at byte %d (%s): %s", e.Offset, e.Part, e.Reason)
}
