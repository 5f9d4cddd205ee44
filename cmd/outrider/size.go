package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// laneFlag is a lane of a store to be built: "PATH" or "PATH:WEIGHT".
type laneFlag struct {
	path   string
	weight float64 // 0: not given
}

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (l *laneFlag) UnmarshalText(text []byte) error {
	s := string(text)
	*l = laneFlag{path: s}
	if i := strings.LastIndexByte(s, ':'); i > 0 {
		// "C:\x" and names with a colon in them are paths.
		if w, err := strconv.ParseFloat(s[i+1:], 64); err == nil {
			if !(w > 0) || math.IsInf(w, 0) {
				return fmt.Errorf("lane %q has weight %s, want a number above 0, such as its bandwidth in MB/s", s, s[i+1:])
			}
			*l = laneFlag{path: s[:i], weight: w}
		}
	}
	if l.path == "" {
		return fmt.Errorf("lane %q has no path: give PATH or PATH:WEIGHT", s)
	}
	return nil
}

// bytesText is a size for people: "12.5 MiB".
func bytesText(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// sizeText is a size with the exact number: "13,369,344 bytes (12.8 MiB)".
func sizeText(n int64) string {
	return fmt.Sprintf("%s bytes (%s)", humanize.Comma(n), bytesText(n))
}
