package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// app is what every command gets: where to write, and in which form.
type app struct {
	stdout, stderr io.Writer
	json           bool
	now            func() time.Time
}

// print writes the result of a command: value as one JSON object, or what text
// writes.
func (a *app) print(value any, text func(w io.Writer)) error {
	var out bytes.Buffer
	if a.json {
		enc := json.NewEncoder(&out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		if err := enc.Encode(value); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	} else {
		text(&out)
	}
	return a.write(out.String())
}

func (a *app) write(s string) error {
	if _, err := io.WriteString(a.stdout, s); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// warn tells on stderr what a user should know of the input; with --json it is
// silent, and the results of trace info and trace convert carry it.
func (a *app) warn(sentences ...string) {
	if a.json {
		return
	}
	for _, s := range sentences {
		fmt.Fprintln(a.stderr, "note: "+s)
	}
}

// say tells a person what is going on; with --json it is silent.
func (a *app) say(format string, args ...any) {
	if !a.json {
		fmt.Fprintf(a.stdout, format+"\n", args...)
	}
}
