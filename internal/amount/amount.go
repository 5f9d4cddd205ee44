// Package amount reads sizes as people give them on a command line: in bytes, or as
// a share of something.
package amount

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// Amount is a number of bytes, or a share of something: "25%", "512MiB",
// "1.5GB", "4096". The zero value is none.
type Amount struct {
	Share Share // if given as one, else 0
	Bytes int64 // otherwise
}

// UnmarshalText implements encoding.TextUnmarshaler. An error says what is accepted.
func (a *Amount) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	if strings.HasSuffix(s, "%") {
		var part Share
		if err := part.UnmarshalText([]byte(s)); err != nil {
			return err
		}
		*a = Amount{Share: part}
		return nil
	}
	n, err := humanize.ParseBytes(s)
	if err != nil || n == 0 || n > math.MaxInt64 {
		return fmt.Errorf(`%q is no size: give a share such as 25%%, or bytes such as 512MiB, 1.5GB or 4096`, s)
	}
	*a = Amount{Bytes: int64(n)}
	return nil
}

// Of is the amount in bytes, where 100 % is total; a share is rounded up.
func (a Amount) Of(total int64) int64 {
	if a.Bytes > 0 {
		return a.Bytes
	}
	return a.Share.Of(total)
}

// Share is more than 0 and at most 1, given as "25%" or "0.25".
type Share float64

// UnmarshalText implements encoding.TextUnmarshaler. An error says what is accepted.
func (p *Share) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	number, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(number, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return fmt.Errorf(`%q is no share: give more than 0%% and at most 100%%, such as 25%% or 0.25`, s)
	}
	*p = Share(v)
	return nil
}

// Of is this share of total, rounded up.
func (p Share) Of(total int64) int64 { return int64(math.Ceil(float64(p) * float64(total))) }
