//go:build race

package router

// raceEnabled shortens tests that the race detector makes many times slower.
const raceEnabled = true
