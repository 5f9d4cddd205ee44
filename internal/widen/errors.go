package widen

import (
	"errors"
	"fmt"
)

var (
	// ErrFactor: a factor that is no power of two in range.
	ErrFactor = errors.New("factor cannot be used")
	// ErrModel: the model has something that is not known how to widen, lacks
	// something, or contradicts itself.
	ErrModel = errors.New("model cannot be widened")
)

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrModel, fmt.Sprintf(format, args...))
}
