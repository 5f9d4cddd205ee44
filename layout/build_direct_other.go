//go:build !linux

package layout

// directRefused is for systems without direct writes, where nothing is refused.
func directRefused(error) bool { return false }

// startWriteback leaves it to the system when to write.
func startWriteback(WriteFile) {}
