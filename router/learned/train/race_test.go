//go:build race

package train

// raceEnabled: the race detector makes training an order slower.
const raceEnabled = true
