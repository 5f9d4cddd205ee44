//go:build race

package widen

// underRace cuts generation short.
const underRace = true
