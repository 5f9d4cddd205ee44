//go:build !race

package layout

// RaceEnabled is false without the race detector.
const RaceEnabled = false
