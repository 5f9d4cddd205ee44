//go:build race

package refmodel

// underRace cuts numeric comparisons short.
const underRace = true
