package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"outrider/internal/amount"
	"outrider/internal/dummystore"
	"outrider/internal/mmaparm"
	"outrider/internal/passes"
	"outrider/internal/replay"
	"outrider/layout"
	"outrider/trace"
)

type replayCmd struct {
	Trace     string          `arg:"" help:"Routing data: a file, or the folder of one recording."`
	Store     string          `arg:"" optional:"" help:"A store, or a checkpoint in place, of the trace's shape. If it is left out, a store of the trace's shape without weights is made in --dir and removed at the end."`
	Budget    []amount.Amount `help:"Memory for experts, in per cent of all experts or in bytes; several make a cell of each. Default: ${default}." default:"25%" placeholder:"SIZE"`
	Runs      []string        `help:"What to compare: ${runs}; mmap (the files mapped into memory, the page cache held to the budget). Default: ${default}." default:"lru,online,online+spec,mmap" placeholder:"RUN"`
	Compute   time.Duration   `help:"Compute of a layer in a pass, imitated (${default})." default:"1ms" placeholder:"TIME"`
	Attention float64         `help:"Share of it before the layer's routing is known (${default})." default:"0.5" placeholder:"SHARE"`
	Rounds    int             `help:"How often every arm plays the trace, each time from a cold start (${default})." default:"3" placeholder:"N"`
	MaxTokens int             `help:"Replay this many tokens; 0 means all (${default})." default:"200" placeholder:"N"`
	Batch     int             `help:"Sequences that run in one pass." default:"1" placeholder:"B"`
	Chunk     int             `help:"Prompt tokens of a sequence in one pass, where the trace tells prefill from decode." default:"1" placeholder:"T"`
	Record    amount.Amount   `help:"Size of an expert in the store that is made if STORE is left out (${default})." default:"256KiB" placeholder:"BYTES"`
	Dir       string          `help:"Where that store is made; default: the system's folder for temporary files." placeholder:"DIR"`
	Plot      string          `help:"Also draw stall and hits against budget: .svg or .png." placeholder:"FILE"`
	readFlags
	recording
}

func (replayCmd) Help() string {
	return "Reads are real, through the runtime; only compute is imitated. Every round plays each arm from a cold start: its experts are in nobody's memory, and the store's pages " +
		"were dropped from the page cache, which is checked and reported. The first arm is played once more at the end, to show what changed meanwhile. Figures are medians over the rounds; " +
		"the spread stands beside the stall. After each arm a raw reader reads the same extents in the same order, with nothing in between. The policies, the passes and the fields are those of outrider simulate." +
		recordingHelp + statusHelp
}

// Run replays a trace with real reads.
func (c *replayCmd) Run(ctx context.Context, a *app) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	t, err := c.tokens(ctx, a, c.MaxTokens, c.Trace)
	if err != nil {
		return err
	}
	store := c.Store
	if store == "" {
		folder, made, err := c.makeStore(ctx, a, t.Header.Shape)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
		store = made
	}
	fsys, files, err := c.files()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	b, r, err := c.bench(fsys, store, t)
	if err != nil {
		return err
	}
	bar := a.progress("replaying", "layers")
	defer bar.finish()
	b.Progress = bar.set
	results, err := b.Run(ctx, c.cells(r.Store.AllBytes))
	if err != nil {
		return err
	}
	bar.finish()
	r.add(results, c)
	if c.Plot != "" {
		if err := writeRuns(c.Plot, r.plot()); err != nil {
			return err
		}
	}
	return a.print(r, r.writeTo)
}

// check is what can be told of the arguments alone.
func (c *replayCmd) check() error {
	switch {
	case c.MaxTokens < 0 || c.Rounds < 1 || c.Batch < 1 || c.Chunk < 1:
		return usagef("--max-tokens, --rounds, --batch and --chunk are %d, %d, %d and %d, want 0, 1, 1, 1 or more", c.MaxTokens, c.Rounds, c.Batch, c.Chunk)
	case c.Compute <= 0 || !(c.Attention > 0 && c.Attention <= 1):
		return usagef("--compute is %v and --attention %v, want more than 0, and more than 0 to 1", c.Compute, c.Attention)
	case c.Record.Bytes <= 0:
		return usagef("--record is a share, want bytes such as 256KiB")
	}
	for _, run := range c.Runs {
		if err := replay.Known(run); err != nil {
			return usagef("--runs: %v, mmap", err)
		}
	}
	if err := c.readFlags.check(); err != nil {
		return err
	}
	return checkPlot(c.Plot)
}

// makeStore makes a store without weights in a folder of its own.
func (c *replayCmd) makeStore(ctx context.Context, a *app, shape layout.Shape) (folder, store string, err error) {
	parent := c.Dir
	if parent == "" {
		parent = os.TempDir()
	}
	if folder, err = os.MkdirTemp(parent, "outrider-replay-"); err != nil {
		return "", "", fmt.Errorf("replay: %w: name another folder with --dir", err)
	}
	store = filepath.Join(folder, "dummy.outrider")
	o := dummystore.Options{Shape: shape, RecordBytes: c.Record.Bytes, FS: layout.OS(), Dir: store}
	plan, err := dummystore.Plan(o)
	if err == nil {
		a.warn(fmt.Sprintf("no store was named: making one without weights, %s in %s, for this call", bytesText(plan.Bytes()), folder))
		bar := a.progress("making the store", inBytes)
		o.Progress = bar.set
		_, err = dummystore.Build(ctx, o)
		bar.finish()
	}
	if err != nil {
		return "", "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, store, nil
}

// bench opens the store once to see that it fits the trace, and describes what
// will be compared.
func (c *replayCmd) bench(fsys layout.FS, store string, t *trace.Trace) (*replay.Bench, *replayed, error) {
	m, err := openModel(fsys, store, c.mode())
	if err != nil {
		return nil, nil, err
	}
	defer m.Source.Close() // nothing was written
	if has, want := m.Source.Shape(), t.Header.Shape; has.Layers != want.Layers || has.Experts != want.Experts {
		return nil, nil, inputf("%s has %d layers x %d experts, the trace %s %d x %d: they are of different models (leave the store out to replay against one without weights)",
			store, has.Layers, has.Experts, c.Trace, want.Layers, want.Experts)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	b := &replay.Bench{
		Trace: t, Passes: passes.Options{MaxTokens: c.MaxTokens, Batch: c.Batch, Chunk: c.Chunk},
		Open: func() (layout.Source, error) {
			m, err := openModel(fsys, store, c.mode())
			if err != nil {
				return nil, err
			}
			return m.Source, nil
		},
		Layer: c.Compute, Attention: c.Attention, Rounds: c.Rounds,
		Exe: exe, Args: []string{mmapServe},
	}
	if b.Workers, b.Block, err = c.settings(); err != nil {
		return nil, nil, err
	}
	r := &replayed{
		Trace: describeTrace([]string{c.Trace}, t),
		Store: replayedStore{Path: store, Made: c.Store == "", AllBytes: m.slotBytes()},
	}
	var engines []string
	for _, lane := range m.Source.Lanes() {
		b.Files = append(b.Files, lane.Path)
		engines = append(engines, layout.EngineFor(lane.File, m.largestSlot()))
	}
	r.Store.Engine = enginesText(engines)
	return b, r, nil
}

// cells are all combinations of budgets and runs.
func (c *replayCmd) cells(allBytes int64) []replay.Cell {
	var cells []replay.Cell
	for _, budget := range c.Budget {
		for _, run := range c.Runs {
			cells = append(cells, replay.Cell{Run: run, BudgetBytes: budget.Of(allBytes)})
		}
	}
	return cells
}

// mmapServe is the hidden command that is the mmap arm's process.
const mmapServe = "mmap-serve"

type mmapServeCmd struct{}

// Run answers on standard input and output until the input ends.
func (mmapServeCmd) Run(ctx context.Context) error { return mmaparm.Serve(ctx, os.Stdin, os.Stdout) }
