package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"outrider/internal/runs"
	"outrider/router"
)

// readingProcs are Ps of Go's scheduler beyond one a core. A read holds its P
// until the scheduler notices; with none to spare, the next read waits for that
// while a core is idle.
const readingProcs = 1

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + readingProcs)
	// The first ^C cancels and cleans up; a second one ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// cli is the whole command line.
type cli struct {
	JSON bool `help:"Print one JSON object instead of text."`

	Layout struct {
		Build    buildCmd          `cmd:"" help:"Turn a checkpoint into a store."`
		Inspect  inspectCmd        `cmd:"" help:"Describe a store or a checkpoint."`
		Verify   verifyCmd         `cmd:"" help:"Check every byte of a store."`
		Forecast layoutForecastCmd `cmd:"" help:"Measure what a store would gain over reading in place."`
		Export   exportCmd         `cmd:"" help:"Turn a store back into the expert tensors it was built from."`
	} `cmd:"" help:"Build, describe, check and export stores."`
	Run   runCmd `cmd:"" help:"Generate text with a model whose experts are streamed."`
	Trace struct {
		Info    traceInfoCmd    `cmd:"" help:"Describe routing data and how predictable it is."`
		Convert traceConvertCmd `cmd:"" help:"Convert routing data of any form into this project's."`
		Synth   traceSynthCmd   `cmd:"" help:"Make a synthetic trace."`
		Forms   traceFormsCmd   `cmd:"" help:"List the forms of routing data that are read."`
	} `cmd:"" help:"Describe, convert and make routing traces."`
	Synth    synthCmds   `cmd:"" help:"Make checkpoints of any family, of random weights or widened from a real one."`
	Evaluate evaluateCmd `cmd:"" help:"Measure forecasts of the router on a trace."`
	Train    trainCmd    `cmd:"" help:"Train a forecast on traces, to stand on the online one."`
	Simulate simulateCmd `cmd:"" help:"Replay a trace against caches and forecasts in virtual time."`
	Replay   replayCmd   `cmd:"" help:"Replay a trace with real reads from a store."`
	Probe    probeCmd    `cmd:"" help:"Measure a drive and find the settings for it."`
	Bench    benchCmd    `cmd:"" help:"Measure what the runtime delivers of what the drive gives."`
	Demo     demoCmd     `cmd:"" help:"Show the whole flow with the model inside this program."`

	MmapServe mmapServeCmd `cmd:"" hidden:""`
}

const description = "Run a mixture-of-experts model in less memory than its weights need."

// run is the program: it returns the exit status. Nothing of it outlives the call.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var c cli
	helped := false
	parser, err := kong.New(&c, kong.Name("outrider"), kong.Description(description),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }), kong.Vars{"checkpoint": checkpointHelp, "runs": runs.Describe, "predictors": strings.Join(router.Names(), ", ")},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}))
	if err != nil {
		fmt.Fprintf(stderr, "outrider: %v\n", err)
		return exitFailed
	}
	if len(args) == 0 {
		_, _ = parser.Parse([]string{"--help"})
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	if helped {
		return exitDone
	}
	a := &app{stdout: stdout, stderr: stderr, json: c.JSON, now: time.Now}
	if err == nil {
		parsed.BindTo(ctx, (*context.Context)(nil))
		err = parsed.Run(a)
	}
	status := exitStatus(ctx, err)
	if err != nil {
		fmt.Fprintln(stderr, "outrider: "+message(ctx, err))
	}
	return status
}

// usageHint names the help of the command whose arguments were wrong.
func usageHint(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) {
		return ""
	}
	path := "outrider"
	if node := parse.Context.Selected(); node != nil {
		path = node.FullPath()
	}
	return fmt.Sprintf(` (see "%s --help")`, path)
}
