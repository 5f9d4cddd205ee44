package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// amount is a number of bytes, or a share of something: "25%", "512MiB",
// "1.5GB", "4096".
type amount struct {
	share float64 // 0 to 1, if given as a share
	bytes int64   // otherwise
}

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (m *amount) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if strings.HasSuffix(s, "%") {
		var part share
		if err := part.UnmarshalText([]byte(s)); err != nil {
			return err
		}
		*m = amount{share: float64(part)}
		return nil
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return fmt.Errorf(`%q is no size: give a share such as 25%%, or bytes such as 512MiB, 1.5GB or 4096`, s)
	}
	*m = amount{bytes: int64(n)}
	return nil
}

// of is the amount in bytes, where 100 % is total.
func (m amount) of(total int64) int64 {
	if m.bytes > 0 {
		return m.bytes
	}
	return int64(math.Ceil(m.share * float64(total)))
}

// share is more than 0 and at most 1, given as "25%" or "0.25".
type share float64

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (p *share) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return fmt.Errorf(`%q is no share: give more than 0%% and at most 100%%, such as 25%% or 0.25`, s)
	}
	*p = share(v)
	return nil
}

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
