package llama

import (
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
)

// levelError is GGML_LOG_LEVEL_ERROR.
const levelError = 4

// logTail keeps what llama.cpp said was wrong since it was last asked; all else that
// it logs is dropped.
type logTail struct {
	mu    sync.Mutex
	lines []string
}

const maxLogLines = 8

// captureLog takes the library's log. A callback cannot be freed, so it is made once.
func captureLog() *logTail {
	t := &logTail{}
	llama.LogSet(purego.NewCallback(func(level int32, text *byte, _ uintptr) {
		if level == levelError && text != nil {
			t.add(cString(text))
		}
	}))
	return t
}

func (t *logTail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	if len(t.lines) == maxLogLines {
		t.lines = append(t.lines[:0], t.lines[1:]...)
	}
	t.lines = append(t.lines, line)
}

// words are ": what was logged", and forget it; "" if nothing was.
func (t *logTail) words() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return ""
	}
	s := ": " + strings.Join(t.lines, "; ")
	t.lines = t.lines[:0]
	return s
}

// maxText bounds a string of the library's.
const maxText = 4096

func cString(p *byte) string {
	n := 0
	for n < maxText && *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
