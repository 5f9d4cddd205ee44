package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"outrider/trace"
	"outrider/trace/importer"
)

type traceConvertCmd struct {
	Trace     []string `arg:"" help:"Routing data: one file, the files of one recording, or their folder."`
	Out       string   `required:"" short:"o" help:"The file to write, which must not exist. Its name tells the form: .trace binary, .jsonl JSON lines, .json for a histogram; with .gz or .zst compressed." placeholder:"FILE"`
	MaxTokens int      `help:"Convert this many tokens only; 0 means all." default:"0" placeholder:"N"`
	recording
}

func (traceConvertCmd) Help() string {
	return "Tokens are checked and written one by one, so a trace need not fit in memory. What a form does not tell (phases, sequences, rank order, " +
		"logical or physical ids) stays unknown. Of a torn or damaged trace what came before the damage is written, and the exit status is 3." +
		recordingHelp + statusHelp
}

// conversion is what --json prints.
type conversion struct {
	Out       string   `json:"out"`
	Form      string   `json:"form"` // of the input
	Histogram bool     `json:"histogram"`
	Tokens    int64    `json:"tokens"`
	Bytes     int64    `json:"bytes"`
	Notes     []string `json:"notes"`
	Complete  bool     `json:"complete"`
}

// Run converts routing data into this project's forms.
func (c *traceConvertCmd) Run(ctx context.Context, a *app) error {
	if c.MaxTokens < 0 {
		return usagef("--max-tokens is %d, want 0 (all) or more", c.MaxTokens)
	}
	in, err := c.open(c.Trace...)
	if err != nil {
		return err
	}
	defer in.Close() // nothing was written to it
	done := conversion{Out: c.Out, Form: in.Form.Name, Histogram: in.Histogram != nil}
	var damage error
	if in.Histogram != nil {
		err = in.Histogram.Create(c.Out)
	} else {
		done.Tokens, damage, err = c.copyTokens(ctx, a, in)
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(c.Out)
	if err != nil {
		return err
	}
	done.Bytes, done.Notes, done.Complete = info.Size(), in.Notes(), damage == nil
	a.warn(done.Notes...)
	return errors.Join(a.print(done, done.writeTo), damage)
}

// copyTokens writes the stream into the new file. Damage of the input is
// returned apart from what makes the output useless; then no file is left.
func (c *traceConvertCmd) copyTokens(ctx context.Context, a *app, in *importer.Import) (n int64, damage, err error) {
	out, err := trace.Create(c.Out, in.Header())
	if err != nil {
		return 0, nil, err
	}
	progress := a.progress("converting", "tokens")
	n, err = copyTrace(ctx, out, in, c.MaxTokens, progress.count)
	progress.finish()
	var failed *sinkError
	if !errors.As(err, &failed) && ctx.Err() == nil {
		damage, err = err, nil
	}
	if errors.Is(damage, io.EOF) {
		damage = nil
	}
	err = errors.Join(err, out.Close())
	if err != nil || (damage != nil && n == 0) {
		return n, nil, errors.Join(err, damage, os.Remove(c.Out))
	}
	return n, damage, nil
}

// sinkError is a failure to write.
type sinkError struct{ error }

func (e *sinkError) Unwrap() error { return e.error }

// copyTrace copies up to limit tokens (0: all) and tells how many. It ends with the
// stream's error (io.EOF at its end), a *sinkError, or the context's cause.
func copyTrace(ctx context.Context, out trace.Sink, in trace.Stream, limit int, progress func(int64)) (n int64, err error) {
	var token trace.Activation
	for limit <= 0 || n < int64(limit) {
		if n%1024 == 0 {
			progress(n)
			if ctx.Err() != nil {
				return n, context.Cause(ctx)
			}
		}
		if err := in.Next(&token); err != nil {
			return n, err
		}
		if err := out.Append(&token); err != nil {
			return n, &sinkError{err}
		}
		n++
	}
	return n, nil
}

func (c conversion) writeTo(w io.Writer) {
	if c.Histogram {
		fmt.Fprintf(w, "%s: a histogram, from %s, %s\n", c.Out, c.Form, bytesText(c.Bytes))
		return
	}
	fmt.Fprintf(w, "%s: %d tokens, from %s, %s\n", c.Out, c.Tokens, c.Form, bytesText(c.Bytes))
}
