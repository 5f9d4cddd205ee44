// Command bench measures outrider-llama: every figure in one run, with arms that take
// turns.
//
//	main.go      the command line
//	schedule.go  which arm runs when
//	measure.go   carries the schedule out
//	child.go     one run of outrider-llama
//	cgroup.go    the memory limit around it
//	raw.go       what the drive gives to direct reads when nothing stands in between
//	figures.go   medians and ratios of what was measured
//	demands.go   what was wanted, what came out
//	report.go    Markdown and JSON
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"outrider/internal/amount"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

//go:embed passages.txt
var passages []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second ^C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is the command line.
type command struct {
	Lib     string `help:"The folder with llama.cpp's shared libraries." env:"YZMA_LIB" default:"lib" placeholder:"DIR"`
	Model   string `required:"" help:"The GGUF file, any shard of a split one, or its folder." placeholder:"GGUF"`
	Store   string `help:"The streaming arms read the experts from this store instead of the GGUF file itself." placeholder:"FOLDER"`
	Command string `help:"A built outrider-llama; without it, it is built from this module, in whose folder bench must run then." placeholder:"FILE"`

	Budgets []budget `help:"Memory for experts: shares of what all of them take, or bytes (${default})." default:"10%,25%,50%,100%" placeholder:"SIZE"`
	Rounds  int      `help:"How often each arm runs (${default})." default:"3" placeholder:"N"`
	Tokens  int      `help:"Tokens that an arm decodes in a round (${default})." default:"300" placeholder:"N"`

	WarmUp        int           `help:"Tokens before those that are measured: memory and forecast are as in the middle of a text then. The mmap arm has as many as it decodes at most (${default})." default:"0" placeholder:"N"`
	MmapTokens    int           `help:"Tokens that the mmap arm decodes, which takes about a second for each (${default})." default:"24" placeholder:"N"`
	PrefillTokens int           `help:"Tokens of the prompt; 0 leaves prefill out (${default})." default:"512" placeholder:"N"`
	EqualTokens   int           `help:"Tokens of each text that must be equal in all arms; 0 leaves that out (${default})." default:"128" placeholder:"N"`
	RawTime       time.Duration `help:"How long the raw reader reads with each of its depths, each time (${default})." default:"250ms" placeholder:"TIME"`
	ForceText     string        `help:"Passages to decode, blank lines between them; without it, twelve of our own." placeholder:"FILE"`
	Out           string        `help:"Write all figures to this file as JSON, in place of what is there (${default})." default:"results.json" placeholder:"FILE"`

	args []string
}

const description = `Measure outrider-llama: speed against llama.cpp with all weights in memory, against mmap and against demand caching under the same memory limit, prefill, memory, and equality of texts, in one run with arms that take turns.`

// Help is behind the flags.
func (command) Help() string {
	return `A table in Markdown goes to standard output, progress to standard error. Figures are medians over the rounds with the least and the most; ratios are of runs in the same round. MB are 10^6 bytes.

Arms, each a process of its own with the model's files dropped from the page cache before:

	resident  llama.cpp alone, all weights read into memory, no limit
	mmap      llama.cpp alone, mapped, under a memory limit of dense weights + budget + 128 MB
	demand    outrider-llama under the same limit: least recently used, nothing read ahead
	outrider  outrider-llama under the same limit

The limit is a memory cgroup (version 1 or 2), made for each run and removed. Where none can be made (it takes root, or a group of one's own) the mmap arm is left out, and the others run without a limit.

Of a small model the figures say little: most of its time is spent between reads. Those of this project are of a tiny real model enlarged, whose file must lie on the drive that is to be measured (F16: 1.65 GB; it has the text and the routing of the small one):

	go run -C ../.. ./cmd/outrider synth widen ../shared/data/tinymoe/tinymoe-f16.gguf --width 8 --ffn 8 --out /tmp/big-f16.gguf
	go run -C ../.. ./cmd/outrider synth widen testdata/tinymoe/tinymoe-q8_0.gguf --width 8 --ffn 8 --out /tmp/big-q8_0.gguf
	go run ./bench --lib lib --model /tmp/big-f16.gguf --rounds 3

Nothing else should run meanwhile: llama.cpp's threads wait for each other in loops, and one that has no core delays all of them. With the defaults count on half an hour. Exit status: 0 if all was measured, whatever came out; 1 if a run failed; 2 for a fault of the command line.`
}

// run is the program: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c command
	helped := false
	parser, err := kong.New(&c, kong.Name("bench"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return exitFailed
	}
	c.args = args
	_, err = parser.Parse(args)
	if helped {
		return exitDone
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v (see bench --help)\n", err)
		return exitUsage
	}
	err = c.measure(ctx, stdout, stderr)
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintf(stderr, "bench: %v\n", err)
	return exitFailed
}

// check looks at what the parser cannot.
func (c *command) check() error {
	switch {
	case c.Rounds < 1 || c.Tokens < 1 || c.MmapTokens < 1:
		return fmt.Errorf("--rounds, --tokens and --mmap-tokens are %d, %d and %d: want 1 or more", c.Rounds, c.Tokens, c.MmapTokens)
	case c.WarmUp < 0 || c.PrefillTokens < 0 || c.EqualTokens < 0:
		return fmt.Errorf("--warm-up, --prefill-tokens and --equal-tokens are %d, %d and %d: want 0 or more", c.WarmUp, c.PrefillTokens, c.EqualTokens)
	case c.RawTime <= 0 || c.RawTime > time.Minute:
		return fmt.Errorf("--raw-time is %v, want more than 0 and a minute at most", c.RawTime)
	}
	return nil
}

// budget is one as it was given, which is how it is passed on.
type budget struct {
	text string
	of   func(all int64) int64
}

// UnmarshalText implements encoding.TextUnmarshaler, for the command line.
func (b *budget) UnmarshalText(text []byte) error {
	var a amount.Amount
	if err := a.UnmarshalText(text); err != nil {
		return err
	}
	b.text, b.of = string(text), a.Of
	return nil
}

// String is the text as it was given.
func (b budget) String() string { return b.text }
