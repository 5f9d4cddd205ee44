//go:build !linux

package llama

import "fmt"

// reserve exists on Linux only, and so does Load.
type reserve struct {
	typ *byte
	err error
}

func (l *Lib) newReserve() (*reserve, error) {
	return nil, fmt.Errorf("address space can be reserved on Linux only")
}

func (r *reserve) close() error { return nil }
