package lint

import (
	"regexp"
	"strings"
	"testing"
)

// quoting are the documents whose Go code is that of files which are compiled.
var quoting = map[string]int{"docs/embedding.md": 6}

// TestCodeIsQuoted: each Go block of these documents is in the file that the text
// names last before it, in backquotes, line by line but for indentation.
func TestCodeIsQuoted(t *testing.T) {
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	file := regexp.MustCompile("`([A-Za-z0-9_/]+\\.go)`")
	for doc, least := range quoting {
		text := read(t, doc)
		blocks := block.FindAllStringSubmatchIndex(text, -1)
		if len(blocks) < least {
			t.Errorf("%s has %d blocks of Go, want %d or more", doc, len(blocks), least)
		}
		for _, at := range blocks {
			code := text[at[2]:at[3]]
			named := file.FindAllStringSubmatch(text[:at[0]], -1)
			if named == nil {
				t.Errorf("%s: no file is named before\n%s", doc, code)
				continue
			}
			name := named[len(named)-1][1]
			if !strings.Contains(flat(read(t, name)), flat(code)) {
				t.Errorf("%s: this is not in %s:\n%s", doc, name, code)
			}
		}
	}
}

// TestNamedSourcesExist: the files of examples/llamacpp that the page on embedding names
// by their folder there are those that it has.
func TestNamedSourcesExist(t *testing.T) {
	const doc, least = "docs/embedding.md", 10
	named := regexp.MustCompile("`((?:stream|llama|ggml)/[a-z0-9_]+\\.(?:go|s))`").FindAllStringSubmatch(read(t, doc), -1)
	if len(named) < least {
		t.Errorf("%s names %d files, want %d or more", doc, len(named), least)
	}
	for _, n := range named {
		read(t, "examples/llamacpp/"+n[1]) // fails where there is none
	}
}

// flat is text without indentation, so that lines compare as they read.
func flat(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSpace(l)
	}
	return strings.Join(lines, "\n")
}
