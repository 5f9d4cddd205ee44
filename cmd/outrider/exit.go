package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"outrider/experts"
	"outrider/internal/gain"
	"outrider/internal/lookeval"
	"outrider/internal/refmodel"
	"outrider/internal/widen"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/export"
	"outrider/layout/gguf"
	"outrider/router"
	"outrider/trace"
	"outrider/trace/importer"
)

// Exit statuses, as every command's help states them.
const (
	exitDone        = 0
	exitWrong       = 1
	exitUsage       = 2
	exitInput       = 3
	exitFailed      = 4
	exitInterrupted = 130
)

const statusHelp = `

Exit status:

	0    done
	1    what was checked is wrong
	2    usage
	3    the input cannot be used: missing, not ours, damaged, does not fit
	4    failed for another reason, such as I/O or no space
	130  interrupted`

// wrongError is a finding: the command worked, and what it checked is wrong.
type wrongError struct{ finding string }

func (e wrongError) Error() string { return e.finding }

// usageError is an argument that has no meaning.
type usageError struct{ reason string }

func (e usageError) Error() string { return e.reason }

func usagef(format string, args ...any) error {
	return usageError{fmt.Sprintf(format, args...)}
}

// inputError is an input that this program cannot use, where no library has a word for it.
type inputError struct{ reason string }

func (e inputError) Error() string { return e.reason }

func inputf(format string, args ...any) error {
	return inputError{fmt.Sprintf(format, args...)}
}

// inputErrors are what libraries call an input that cannot be used.
var inputErrors = []error{
	fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, syscall.EISDIR, syscall.ENOTDIR,
	layout.ErrNotStore, layout.ErrVersion, layout.ErrExists, layout.ErrUnfinished, layout.ErrSourceChanged,
	layout.ErrCheckpoint, layout.ErrPlan,
	checkpoint.ErrUnknown,
	gguf.ErrNoTensor,
	importer.ErrUnknownForm, importer.ErrNeedShape, importer.ErrLossy, importer.ErrHistogram,
	trace.ErrNotTrace, trace.ErrVersion, trace.ErrTorn, trace.ErrActivation,
	router.ErrShape,
	lookeval.ErrInput,
	experts.ErrBelowFloor,
	gain.ErrSpace,
	export.ErrNoTensors, export.ErrFormat,
	refmodel.ErrArchitecture, refmodel.ErrModel, refmodel.ErrTokenizer, refmodel.ErrPromptTooLong,
	refmodel.ErrEmptyPrompt, refmodel.ErrToken, refmodel.ErrExperts, refmodel.ErrNotFinite,
	widen.ErrModel,
}

// exitStatus is the one place where errors become numbers.
func exitStatus(ctx context.Context, err error) int {
	var parse *kong.ParseError
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &parse), errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, new(wrongError)):
		return exitWrong
	case errors.Is(err, layout.ErrNoSpace), errors.Is(err, syscall.ENOSPC):
		return exitFailed
	case isInput(err):
		return exitInput
	}
	return exitFailed
}

func isInput(err error) bool {
	for _, sentinel := range inputErrors {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	var damagedStore *layout.CorruptError
	var damagedTrace *trace.CorruptError
	var checkpoint *layout.FormatError
	return errors.As(err, &checkpoint) || errors.As(err, &damagedStore) || errors.As(err, &damagedTrace) || errors.As(err, new(inputError))
}

// message is what a person reads of an error: one line, without the name of the
// package it came from.
func message(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return "interrupted"
	}
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	for text != strings.TrimSpace(text) || packageName(text) != "" {
		text = strings.TrimSpace(strings.TrimPrefix(text, packageName(text)))
	}
	return text + usageHint(err)
}

// packages are ours, whose names stand before their errors.
var packages = []string{
	"layout", "discover", "gguf", "safetensors", "checkpoint", "trace", "importer", "torchfile", "synth", "router", "learned", "train", "experts", "prefetcher", "runtime",
	"amount", "costs", "dequant", "drive", "dummystore", "evaluate", "export", "gain", "iobench", "lookeval", "mmaparm", "pagecache", "passes", "plots", "rawread", "refmodel", "replay", "runs", "sim", "synthckpt", "tables", "tinymoe", "widen",
}

// packageName is the name that a text begins with, and its colon.
func packageName(text string) string {
	for _, name := range packages {
		if strings.HasPrefix(text, name+": ") {
			return name + ": "
		}
	}
	return ""
}
