//go:build !linux

package layout

// directRefused is for systems without direct writes, where nothing is refused.
func directRefused(error) bool { return false }
