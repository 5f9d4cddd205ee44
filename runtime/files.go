package runtime

import (
	"errors"
	"fmt"
	"io"

	"outrider/layout"
)

// noFiles is what a runtime closes that opened no file system.
type noFiles struct{}

func (noFiles) Close() error { return nil }

// files is where the runtime opens the model's files, what to close after them,
// and why the engine that was chosen is not io_uring; "" if it is, or none was chosen.
func (o Options) files() (fsys layout.FS, end io.Closer, reason string, err error) {
	switch {
	case o.FS != nil:
		return o.FS, noFiles{}, "", nil
	case o.Buffered:
		return layout.OS(), noFiles{}, "", nil
	}
	system, err := layout.OpenSystem(layout.SystemOptions{Engine: o.Engine, Depth: o.ringDepth()})
	if err != nil {
		return nil, nil, "", err
	}
	if o.Engine == layout.AutoEngine {
		reason = system.Reason()
	}
	return system, system, reason, nil
}

// ringDepth is how many reads the engine must take at once: its default, unless
// more were asked for on one lane.
func (o Options) ringDepth() int {
	depth := o.Depth
	if depth == 0 && o.Drive != nil {
		depth = o.Drive.Depth
	}
	if depth <= ringDefault {
		return 0
	}
	return depth
}

// ringDefault is the depth of a ring by default, see layout.RingOptions.
const ringDefault = 64

// refuseFiles reports options about files where the caller has opened them.
func (o Options) refuseFiles() error {
	switch {
	case o.FS != nil:
		return errors.New("runtime: FS has no effect on a source that is open already: leave it out, or use Open")
	case o.Buffered:
		return errors.New("runtime: Buffered has no effect on a source that is open already: open it buffered, or use Open")
	case o.Engine != layout.AutoEngine:
		return fmt.Errorf("runtime: Engine has no effect on a source that is open already: open it with layout.OpenSystem, or use Open")
	}
	return nil
}
