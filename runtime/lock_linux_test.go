package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"outrider/experts"
	"outrider/internal/device"
	"outrider/runtime"
)

// locked is the memory in KiB that the process has locked.
func locked(t *testing.T) (kib int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "VmLck: %d kB", &kib)
	}
	return kib
}

// proveLock: expert memory is locked while there is some, or opening fails.
func proveLock(t *testing.T) {
	records, err := device.NewRecords(device.RecordsOptions{Shape: small})
	if err != nil {
		t.Fatal(err)
	}
	before := locked(t)
	rt, err := runtime.New(records, runtime.Options{BudgetBytes: 8 * slotBytes, FixedBudget: true, Lock: true})
	if errors.Is(err, experts.ErrLockLimit) {
		return // refused, with a reason
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Preload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := locked(t) - before; got < 8*slotBytes>>10 {
		t.Errorf("%d KiB are locked, want the whole budget of %d", got, 8*slotBytes>>10)
	}
	if err := rt.Close(); err != nil {
		t.Fatal(err)
	}
	if got := locked(t); got != before {
		t.Errorf("%d KiB are locked after Close, before %d", got, before)
	}
}
