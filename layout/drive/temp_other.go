//go:build !linux

package drive

import "outrider/layout"

func descriptorName(layout.WriteFile) string { return "" }
