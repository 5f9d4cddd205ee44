//go:build !linux

package runtime_test

import (
	"errors"
	"testing"

	"outrider/internal/device"
	"outrider/runtime"
)

// proveLock: what cannot be locked is refused.
func proveLock(t *testing.T) {
	records, err := device.NewRecords(device.RecordsOptions{Shape: small})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.New(records, runtime.Options{BudgetBytes: 8 * slotBytes, Lock: true}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
}
