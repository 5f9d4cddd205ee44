//go:build !linux

package layout

import "fmt"

// ringEngine is never made on this system.
type ringEngine struct{}

func startRing(int, int64) (*ringEngine, error) {
	return nil, fmt.Errorf("%w: io_uring is part of Linux only", ErrNoRing)
}

func (*ringEngine) adopt(f File, _ string) (File, error) { return f, nil }
func (*ringEngine) prove() error                         { return ErrNoRing }
func (*ringEngine) isBroken() bool                       { return true }
func (*ringEngine) why() string                          { return "" }
func (*ringEngine) close() error                         { return nil }
