// Command outrider-llama runs a mixture-of-experts model with an unchanged llama.cpp, in
// less memory than its weights need.
//
//	main.go      the command line
//	arm.go       a model in one of four modes: Outrider's, demand caching, llama.cpp's own
//	generate.go  text from prompts, greedy
//	forced.go    given text, one token at a time: what speed is measured on
//	summary.go   what it took
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/alecthomas/kong"

	"outrider/internal/amount"
)

// Exit statuses.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// readingProcs are Ps of Go's scheduler beyond one a core: a read holds its P until
// the scheduler notices.
const readingProcs = 1

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + readingProcs)
	context.AfterFunc(ctx, stop) // a second ^C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// command is the command line.
type command struct {
	Lib   string `help:"The folder with llama.cpp's shared libraries (fetch.sh makes one)." env:"YZMA_LIB" default:"lib" placeholder:"DIR"`
	Model string `required:"" help:"A GGUF file, any shard of a split one, or its folder." placeholder:"GGUF"`
	Store string `help:"Read the experts from this store (outrider layout build) instead of the GGUF file itself." placeholder:"FOLDER"`
	Mode  string `help:"outrider: forecast decides what is kept and read ahead; demand: the same reads, least recently used, nothing ahead; mmap, resident: llama.cpp alone, mapped or read into memory." enum:"outrider,demand,mmap,resident" default:"outrider"`

	Budget    amount.Amount `help:"Memory for experts: a share of what all of them take, or bytes (${default})." default:"25%" placeholder:"25%|4GiB"`
	Dense     string        `help:"Weights that are no experts: anon copies them into memory, mapped leaves them in the page cache (${default})." enum:"anon,mapped" default:"anon"`
	Lookahead bool          `help:"Apply the next layers' routers to what each router sees (${default})." negatable:"" default:"true"`
	Overlap   bool          `help:"Compute a layer while experts of it are still read (Linux 6.8, userfaultfd); it has not measured faster."`
	Lock      bool          `help:"Keep expert memory from being swapped out."`

	Prompt       []string `short:"p" sep:"none" help:"The text to go on from; several are decoded together." placeholder:"TEXT"`
	PromptFile   string   `help:"The text to go on from, in a file." placeholder:"FILE"`
	PromptTokens int      `help:"Only so many tokens of each prompt; 0: all." default:"0" placeholder:"N"`
	ForceText    string   `help:"Instead of generating: this file's passages (blank lines between them), each from its beginning, one token at a time." placeholder:"FILE"`
	WarmUp       int      `help:"Tokens of --force-text that are computed before the measurement begins: memory and forecast are as in the middle of a long text then (${default})." default:"0" placeholder:"N"`
	Tokens       int      `short:"n" help:"How many tokens to generate for each prompt, or to force in all (${default})." default:"64" placeholder:"N"`

	Context        int    `help:"Tokens that all prompts and texts together may have; behind that the older half is dropped (${default})." default:"2048" placeholder:"N"`
	Batch          int    `help:"Most tokens of a prompt computed at once (${default})." default:"256" placeholder:"N"`
	Threads        int    `short:"t" help:"Threads that compute; 0: one a core, but for one that is left to reads while single tokens are computed and experts streamed." default:"0" placeholder:"N"`
	FlashAttention string `help:"auto, on or off (${default})." enum:"auto,on,off" default:"auto"`

	TraceOut string `help:"Record the routing in this new file: binary, or JSON lines if it ends in .jsonl, either packed if it ends in .gz or .zst." placeholder:"FILE"`
	JSON     bool   `help:"Print one JSON object instead of text."`
}

const description = "Run a mixture-of-experts model with an unchanged llama.cpp, in less memory than its weights need."

// run is the program: it returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c command
	helped := false
	parser, err := kong.New(&c, kong.Name("outrider-llama"), kong.Description(description), kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		fmt.Fprintf(stderr, "outrider-llama: %v\n", err)
		return exitFailed
	}
	_, err = parser.Parse(args)
	if helped {
		return exitDone
	}
	if err == nil {
		err = c.run(ctx, stdout)
	}
	return status(ctx, err, stderr)
}

// usageError is a fault of the command line.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

func status(ctx context.Context, err error, stderr io.Writer) int {
	var usage usageError
	var parse *kong.ParseError
	switch {
	case err == nil:
		return exitDone
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "outrider-llama: interrupted")
		return exitFailed
	case errors.As(err, &usage), errors.As(err, &parse):
		fmt.Fprintf(stderr, "outrider-llama: %v (see outrider-llama --help)\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "outrider-llama: %v\n", err)
	return exitFailed
}
