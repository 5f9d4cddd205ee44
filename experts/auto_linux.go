package experts

import "os"

// AutoBudget finds a budget for this process: the smallest of the memory that
// the system has available and of what the process's cgroups (version 1 and 2,
// ancestors too, memory.high as well as memory.max) leave, less a reserve of
// 512 MiB or 10 %, whichever is more. Room in swap does not count. It looks at the moment of the call; memory that the process will need for
// other things comes off it. ErrNoAutoBudget: give a budget in bytes instead.
func AutoBudget() (Budget, error) {
	return autoBudget(os.DirFS("/"))
}

// NewPressureSource looks for what this system tells of memory pressure.
// ErrNoPressure: it tells nothing.
func NewPressureSource() (*PressureSource, error) {
	return newPressureSource(os.DirFS("/"))
}
