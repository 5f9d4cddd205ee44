//go:build !race

package lookeval

const raceEnabled = false
