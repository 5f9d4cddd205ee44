package gguf

import (
	"errors"
	"fmt"

	"outrider/layout"
	"outrider/layout/discover"
)

// What can be wrong with a checkpoint; test with errors.Is. All but ErrNoTensor
// arrive inside a *FormatError.
var (
	// ErrNotGGUF: the file does not start with GGUF's magic.
	ErrNotGGUF = errors.New("not a GGUF file")
	// ErrVersion: a GGUF file of a version or byte order that is not read here.
	ErrVersion = errors.New("unsupported GGUF version")
	// ErrTruncated: the file ends before what its header promises; most often
	// an unfinished download.
	ErrTruncated = errors.New("file is truncated")
	// ErrDamaged: the header contradicts itself or breaks the format's rules.
	ErrDamaged = errors.New("damaged GGUF header")
	// ErrType: a tensor has a type whose size is not known here.
	ErrType = errors.New("unknown tensor type")
	// ErrSplit: the shards of a split model do not belong together.
	ErrSplit = errors.New("shards do not fit together")
	// ErrMissingShard: shards of a split model are not there.
	ErrMissingShard = errors.New("shards are missing")
	// ErrNoModel: a folder holds no GGUF model.
	ErrNoModel = errors.New("no GGUF model in the folder")
	// ErrSeveral: a folder holds several models, or one and files that may be one.
	ErrSeveral = errors.New("several GGUF models in the folder")
	// ErrNoExperts: the model has no routed experts under a known name.
	ErrNoExperts = discover.ErrNoExperts
	// ErrExperts: there are routed experts, but not complete records of equal
	// make that fit the metadata.
	ErrExperts = discover.ErrExperts
	// ErrNoTensor: the checkpoint has no tensor of that name.
	ErrNoTensor = errors.New("no such tensor")
)

// FormatError says which file is wrong, where, and how. It unwraps to one of
// the package's sentinels.
type FormatError = layout.FormatError

func wrong(sentinel error, path string, format string, args ...any) error {
	return &FormatError{Format: "gguf", Path: path, Offset: -1, Reason: fmt.Sprintf(format, args...), Err: sentinel}
}
