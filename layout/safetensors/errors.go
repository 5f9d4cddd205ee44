package safetensors

import (
	"errors"
	"fmt"
	"strings"

	"outrider/layout"
)

// What can be wrong with a file; test with errors.Is. All but ErrNoTensor
// arrive inside a *FormatError.
var (
	// ErrNotSafetensors: the file does not start as one of this form.
	ErrNotSafetensors = errors.New("not a safetensors file")
	// ErrTruncated: the file ends before what its header promises; most often
	// an unfinished download.
	ErrTruncated = errors.New("file is truncated")
	// ErrDamaged: the header contradicts itself or breaks the format's rules.
	ErrDamaged = errors.New("damaged safetensors header")
	// ErrIndex: an index is damaged, or it and the shards contradict each other.
	ErrIndex = errors.New("index and shards do not agree")
	// ErrMissingShard: files of a set are not there.
	ErrMissingShard = errors.New("shards are missing")
	// ErrSet: the files make no model, or more than one.
	ErrSet = errors.New("files are not one model")
	// ErrConfig: the configuration beside the files cannot be read.
	ErrConfig = errors.New("configuration is not usable")
	// ErrNoTensor: the file has no tensor of that name.
	ErrNoTensor = errors.New("no such tensor")
)

// FormatError says which file is wrong, where, and how. It unwraps to one of
// the package's sentinels.
type FormatError = layout.FormatError

func wrong(sentinel error, path string, offset int64, format string, args ...any) error {
	return &FormatError{Format: "safetensors", Path: path, Offset: offset, Reason: fmt.Sprintf(format, args...), Err: sentinel}
}

// listed joins names for a message, the first of them if there are many.
func listed(names []string) string {
	const most = 20
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
