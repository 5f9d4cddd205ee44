//go:build !linux

package experts

import "fmt"

// AutoBudget finds a budget for this process on Linux only; here it is always
// ErrNoAutoBudget: give a budget in bytes instead.
func AutoBudget() (Budget, error) {
	return Budget{}, fmt.Errorf("%w: this system is not Linux", ErrNoAutoBudget)
}
