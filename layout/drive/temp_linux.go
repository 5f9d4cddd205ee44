package drive

import (
	"fmt"

	"outrider/layout"
)

// descriptorName is a name for an open file that holds without a folder's
// entry, empty if there is none.
func descriptorName(w layout.WriteFile) string {
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		return fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	}
	return ""
}
