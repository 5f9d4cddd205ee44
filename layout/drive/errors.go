package drive

import "errors"

// What can be wrong, to be found with errors.Is. A damaged profile is a
// *layout.CorruptError, too little free space a layout.ErrNoSpace, and a read
// that claims bytes which it did not bring a layout.ErrSilentRead.
var (
	// ErrNotProfile: the file is no profile of a drive.
	ErrNotProfile = errors.New("not a drive profile")
	// ErrVersion: the profile was written in a version that this program does not know.
	ErrVersion = errors.New("unknown version of a drive profile")
	// ErrSmall: the file is smaller than the smallest block.
	ErrSmall = errors.New("file is too small to measure with")
	// ErrNoAnswer: a call to the drive has not ended in time.
	ErrNoAnswer = errors.New("the drive does not answer")
	// ErrTime: the time was up before anything was measured.
	ErrTime = errors.New("not enough time")
)
