package filetest

import (
	"testing"

	"outrider/layout"
)

// Run holds the files that open makes to the suite. Open returns a file of the
// given content, which it does not keep; the suite closes it.
func Run(t *testing.T, open func(t *testing.T, content []byte) layout.File) {
	t.Helper()
	RunIn(t, func(t *testing.T, test func(*testing.T)) { test(t) }, open)
}

// RunIn is Run with each of its tests inside of another function, such as
// synctest.Test for files whose reads sleep.
func RunIn(t *testing.T, in func(*testing.T, func(*testing.T)), open func(t *testing.T, content []byte) layout.File) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				if err := c.run(func(content []byte) layout.File { return open(t, content) }); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// check is one property. It opens what it needs, and closes it.
type check struct {
	name string
	run  func(open func(content []byte) layout.File) error
}

var checks = []check{
	{"Describes", describes},
	{"Ranges", ranges},
	{"Vectors", vectors},
	{"End", end},
	{"Nothing", nothing},
	{"Refusals", refusals},
	{"Unaligned", unaligned},
	{"Together", together},
	{"CloseDuringReads", closeDuringReads},
	{"AfterClose", afterClose},
}
