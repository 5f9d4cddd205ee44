//go:build !linux

package experts

import "fmt"

// AutoBudget finds a budget for this process on Linux only; here it is always
// ErrNoAutoBudget: give a budget in bytes instead.
func AutoBudget() (Budget, error) {
	return Budget{}, fmt.Errorf("%w: this system is not Linux", ErrNoAutoBudget)
}

// NewPressureSource finds a source on Linux only; here it is always
// ErrNoPressure.
func NewPressureSource() (*PressureSource, error) {
	return nil, fmt.Errorf("%w: it is not Linux", ErrNoPressure)
}
