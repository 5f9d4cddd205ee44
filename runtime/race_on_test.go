//go:build race

package runtime_test

// underRace: the race detector makes everything ten times slower.
const underRace = true
