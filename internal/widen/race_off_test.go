//go:build !race

package widen

const underRace = false
