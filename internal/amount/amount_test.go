package amount_test

import (
	"strings"
	"testing"

	"outrider/internal/amount"
)

func TestAmount(t *testing.T) {
	for in, want := range map[string]int64{"25%": 250, "100%": 1000, "0.05%": 1, "512MiB": 512 << 20, "1.5GB": 1.5e9, "4096": 4096, " 1 KiB ": 1024} {
		var m amount.Amount
		if err := m.UnmarshalText([]byte(in)); err != nil || m.Of(1000) != want {
			t.Errorf("%q: got %d, %v, want %d", in, m.Of(1000), err, want)
		}
	}
	for _, in := range []string{"", "0", "-5", "0%", "101%", "-1%", "NaN%", "x%", "12parsecs", "99999999999EiB"} {
		var m amount.Amount
		err := m.UnmarshalText([]byte(in))
		if err == nil || !strings.Contains(err.Error(), "such as") {
			t.Errorf("%q: got %+v, %v, want an error that says what is accepted", in, m, err)
		}
	}
}

func TestShare(t *testing.T) {
	for in, want := range map[string]amount.Share{"25%": 0.25, "0.25": 0.25, "1": 1, "100%": 1, "12.5%": 0.125} {
		var p amount.Share
		if err := p.UnmarshalText([]byte(in)); err != nil || p != want {
			t.Errorf("%q: got %v, %v, want %v", in, p, err, want)
		}
	}
	for _, in := range []string{"", "0", "25", "%", "-1%", "NaN", "Inf%"} {
		var p amount.Share
		if err := p.UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: got %v, want an error", in, p)
		}
	}
}

func TestShareOf(t *testing.T) {
	for p, want := range map[amount.Share]int64{0: 0, 0.25: 3, 1: 10} { // rounded up
		if got := p.Of(10); got != want {
			t.Errorf("%v of 10: got %d, want %d", p, got, want)
		}
	}
}
