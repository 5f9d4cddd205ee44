package layout

import (
	"errors"
	"fmt"
)

// What can be wrong with a store or a checkpoint, to be found with errors.Is.
// Damage is a *CorruptError, to be found with errors.As.
var (
	// ErrNotStore: the folder holds no manifest of ours.
	ErrNotStore = errors.New("not an outrider store")
	// ErrVersion: the store was written in a format version that this reader does not know.
	ErrVersion = errors.New("unknown store format version")
	// ErrExists: something already lies where a store or lane is to be built.
	ErrExists = errors.New("already exists")
	// ErrUnfinished: the remains of a build that did not end lie beside the target.
	ErrUnfinished = errors.New("unfinished build")
	// ErrNoSpace: a lane's file system cannot hold the lane.
	ErrNoSpace = errors.New("not enough space")
	// ErrSourceChanged: a checkpoint file is not the one that was planned with.
	ErrSourceChanged = errors.New("checkpoint changed")
	// ErrCheckpoint: the description of a checkpoint contradicts itself.
	ErrCheckpoint = errors.New("checkpoint is not usable")
	// ErrPlan: the options or the plan of a store cannot be carried out.
	ErrPlan = errors.New("plan is not usable")
	// ErrUnaligned: a direct read breaks the file's alignment.
	ErrUnaligned = errors.New("direct read is not aligned")
	// ErrSilentRead: a read claimed bytes that it did not deliver.
	ErrSilentRead = errors.New("read reported bytes that it did not deliver")
	// ErrUnknownExpert: the source has no such expert.
	ErrUnknownExpert = errors.New("no such expert")
	// ErrNoRing: this system offers no io_uring to read with.
	ErrNoRing = errors.New("no io_uring")
)

// CorruptError says where a store is damaged.
type CorruptError struct {
	Path   string // the damaged file
	Offset int64  // the first byte known to be wrong, or where the wrong field starts
	Reason string // what was found and what was expected
}

// Error formats the damage as "layout: PATH is damaged at byte OFFSET: REASON".
func (e *CorruptError) Error() string {
	return fmt.Sprintf("layout: %s is damaged at byte %d: %s", e.Path, e.Offset, e.Reason)
}

// FormatError says which file of a checkpoint is wrong, where, and how. The
// packages that read checkpoints make it; it unwraps to a sentinel of theirs.
type FormatError struct {
	Format string // the package: "gguf"
	Path   string
	Offset int64 // in bytes from the start of Path; -1 where no place applies
	Reason string
	Err    error
}

// Error names the file, the kind of fault, the place and the reason.
func (e *FormatError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("%s: %s: %v: %s", e.Format, e.Path, e.Err, e.Reason)
	}
	return fmt.Sprintf("%s: %s: %v: at byte %d: %s", e.Format, e.Path, e.Err, e.Offset, e.Reason)
}

// Unwrap gives the sentinel.
func (e *FormatError) Unwrap() error { return e.Err }

func corrupt(path string, offset int64, format string, args ...any) error {
	return &CorruptError{Path: path, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}
