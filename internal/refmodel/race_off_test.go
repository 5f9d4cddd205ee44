//go:build !race

package refmodel

const underRace = false
