//go:build race

package sim

// raceEnabled shortens tests that the race detector makes many times slower.
const raceEnabled = true
