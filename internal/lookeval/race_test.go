//go:build race

package lookeval

// raceEnabled shortens tests that the race detector makes many times slower.
const raceEnabled = true
