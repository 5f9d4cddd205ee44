// Package tinymoe carries the small model of this folder inside a program, so
// that `outrider demo` needs nothing but its binary.
package tinymoe

import (
	_ "embed"
	"io"
	"strings"
)

// FileName is what the model's file is called.
const FileName = "tinymoe-q8_0.gguf"

//go:embed tinymoe-q8_0.gguf
var model string

// Open reads the file from its start. Any number of readers may be in use.
func Open() io.ReadSeeker { return strings.NewReader(model) }
