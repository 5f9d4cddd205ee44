package stream

import (
	"context"
	"errors"
	"fmt"

	"outrider/examples/llamacpp/ggml"
	"outrider/examples/llamacpp/llama"
	"outrider/examples/llamacpp/stream/overlap"
	"outrider/experts"
	"outrider/layout"
	"outrider/layout/checkpoint"
	"outrider/layout/gguf"
	"outrider/runtime"
)

// Dense says where weights lie that are no experts.
type Dense uint8

const (
	// DenseAnonymous copies them into memory of the process, where a shortage of
	// memory does not push them out before every token.
	DenseAnonymous Dense = iota
	// DenseMapped leaves them in the page cache, mapped from the file.
	DenseMapped
)

// Options say how a model is opened.
type Options struct {
	Path  string // the GGUF file, any shard of a split one, or its folder
	Store string // of its experts; "" reads them from the GGUF file, in place
	Dense Dense
	// Budget is the memory for experts, told what all of them take; nil takes a
	// quarter.
	Budget func(all int64) int64
	// Overlap lets llama.cpp compute a layer while experts of it are still read: a
	// thread that comes to one which is not there waits at its first byte. It needs
	// userfaultfd that moves pages (Linux 6.8), and opening fails with
	// overlap.ErrUnavailable where the kernel or a container refuses that. It means
	// nothing where the budget holds all experts.
	//
	// It is off because it has not measured faster: on two cores, with a quarter of the
	// experts in memory and one thread that computes, 0.72 to 0.78 times the speed (three
	// interleaved rounds): pages change places for each read, and each fault costs more
	// than the moment that it saves.
	// Stats count as stall also time in which llama.cpp had something to compute.
	Overlap bool
	// Runtime is passed on; Placement, Stacked and BudgetBytes are set here.
	Runtime runtime.Options

	wrap func(layout.FS) layout.FS // tests put faults into reads
}

// Model is a model of llama.cpp whose experts come through a runtime. Close it after
// its decoders.
type Model struct {
	*llama.Model
	// Runtime serves the experts. With Options.Runtime.FixedBudget its budget must not be
	// lowered (SetBudget) while tokens are decoded: a model that is whole in memory is
	// computed without asking for experts.
	Runtime *runtime.Runtime
	Name    string
	// ExpertBytes is what all experts take in memory, DenseBytes what the other
	// weights take.
	ExpertBytes, DenseBytes int64
	// Note says what was done otherwise than asked, "" if nothing was.
	Note string

	plan     *plan
	slots    *slots          // nil: experts have an address each
	overlap  *overlap.Memory // of the runtime; nil without Options.Overlap
	files    *layout.System
	dense    *mapping // of the file, with DenseMapped
	budget   int64
	fixed    bool // the budget stays as it is
	topK     int
	weighted bool // gate weights can be seen
}

// Open opens a model, and runs one token through it to see that llama.cpp tells what it
// must. The context limits opening only. Errors name the file and what to do; those of
// the store and the checkpoint are layout's, those of the library package llama's.
//
// Experts of all layers share slots, and llama.cpp is told slots' numbers in place of
// experts'; where the architecture uses the numbers for more than weights, and where the
// budget holds all experts, and with Options.Overlap, each has an address of its own
// instead.
func Open(ctx context.Context, lib *llama.Lib, o Options) (*Model, error) {
	file, err := gguf.Open(layout.OS(), o.Path)
	if err != nil {
		return nil, err
	}
	header, err := file.Merged()
	if err != nil {
		return nil, err
	}
	t := trial{lib: lib, file: file, header: header, mode: layout.Direct, placement: runtime.PlacementPooled}
	if o.Runtime.Buffered {
		t.mode, o.Runtime.Buffered = layout.Buffered, false
	}
	if o.Overlap {
		t.placement = runtime.PlacementFixed
	}
	note := ""
	for {
		m, err := t.open(ctx, o)
		switch {
		case err == nil:
			m.Note = note
			return m, nil
		case errors.Is(err, runtime.ErrNotStacked) && o.Store == "" && t.mode == layout.Direct:
			note = fmt.Sprintf("experts are read through the page cache: %v", err)
			t.mode = layout.Buffered
		case (errors.Is(err, errNumbers) || errors.Is(err, errWhole)) && t.placement == runtime.PlacementPooled:
			t.placement = runtime.PlacementFixed
		default:
			return nil, fmt.Errorf("stream: open %s: %w", o.Path, err)
		}
	}
}

// errWhole: the budget holds all experts, so that addresses never change.
var errWhole = errors.New("the budget holds all experts")

// trial is one way to open a model.
type trial struct {
	lib       *llama.Lib
	file      *gguf.File
	header    []byte
	mode      layout.Mode
	placement runtime.Placement
}

func (t *trial) open(ctx context.Context, o Options) (m *Model, err error) {
	m = &Model{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
			m = nil
		}
	}()
	if m.files, err = layout.OpenSystem(layout.SystemOptions{Engine: o.Runtime.Engine}); err != nil {
		return m, err
	}
	o.Runtime.Engine = layout.AutoEngine // spent
	o.Runtime.Placement = t.placement
	if err := m.open(o, t.file, t.mode); err != nil {
		return m, err
	}
	if err := m.build(ctx, t.lib, o, t.file, t.header); err != nil {
		return m, err
	}
	return m, m.prove(ctx)
}

func (m *Model) open(o Options, file *gguf.File, mode layout.Mode) error {
	path := o.Path
	if o.Store != "" {
		path = o.Store
	}
	files := layout.FS(m.files)
	if o.wrap != nil {
		files = o.wrap(files)
	}
	source, err := checkpoint.Open(files, path, mode)
	if err != nil {
		return err
	}
	if o.Store != "" && !source.BuiltFrom(file.Shards()) {
		return errors.Join(fmt.Errorf("the store %s was built from another model: build one from this with outrider layout build", o.Store), source.Source.Close())
	}
	if m.plan, err = newPlan(source, file, o.Runtime.Placement == runtime.PlacementPooled); err != nil {
		return errors.Join(err, source.Source.Close())
	}
	shape := source.Source.Shape()
	m.ExpertBytes = 0
	for l := range shape.Layers {
		m.ExpertBytes += int64(shape.Experts) * source.Source.SlotBytes(l)
	}
	m.DenseBytes, m.Name, m.topK = m.plan.rest, source.Name, shape.TopK
	o.Runtime.BudgetBytes = (m.ExpertBytes + 3) / 4
	if o.Budget != nil {
		o.Runtime.BudgetBytes = o.Budget(m.ExpertBytes)
	}
	m.budget, m.fixed = o.Runtime.BudgetBytes, o.Runtime.FixedBudget
	if m.Whole() && o.Runtime.Placement == runtime.PlacementPooled {
		return errors.Join(errWhole, source.Source.Close())
	}
	if o.Overlap && !m.Whole() {
		o.Runtime.Stacked = m.overlapping
	}
	rt, err := runtime.New(source.Source, o.Runtime) // closes the source, also when it fails
	if err != nil {
		return err
	}
	m.Runtime = rt
	if err := m.plan.offsets(source, rt); err != nil {
		return err
	}
	m.slots, err = newSlots(rt)
	return err
}

// overlapping makes the memory for Options.Overlap.
func (m *Model) overlapping(shape layout.Shape, slotBytes []int64) (experts.Stacked, error) {
	memory, err := overlap.New(shape, slotBytes)
	if err != nil {
		return nil, fmt.Errorf("%w; leave the overlap out", err)
	}
	m.overlap = memory
	return memory, nil
}

// build lets llama.cpp make the model, its tensors in their places.
func (m *Model) build(ctx context.Context, lib *llama.Lib, o Options, file *gguf.File, header []byte) (err error) {
	own := m.plan.names()
	if o.Dense == DenseMapped {
		if m.dense, err = mapFiles(file); err != nil {
			return err
		}
		own = own[:0]
		for _, t := range file.Tensors() {
			own = append(own, t.Name)
		}
	}
	load := &loader{file: file, buf: make([]byte, loadBytes)}
	defer func() { err = errors.Join(err, load.close()) }()
	m.Model, err = lib.Build(llama.BuildOptions{Header: header, Own: own, Place: func(t *ggml.Tensor, fill llama.FillFunc) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s, ok := m.plan.stacked[t.Name()]; ok {
			return s.place(t, m.Runtime)
		}
		source, ok := file.Tensor(t.Name())
		switch {
		case !ok:
			return fmt.Errorf("llama.cpp wants tensor %q, which the model does not have", t.Name())
		case m.dense != nil:
			return m.dense.place(t, source)
		}
		return load.fill(ctx, source, fill)
	}})
	return err
}

// Whole reports whether the budget holds all experts for good.
func (m *Model) Whole() bool { return m.budget >= m.ExpertBytes }

// resident reports whether all experts are in memory and stay there.
func (m *Model) resident() bool {
	return m.fixed && m.Whole() && m.Runtime.Stats().Memory.Residents == m.Runtime.Shape().Count()
}

// Close frees the model and ends the runtime.
func (m *Model) Close() error {
	var errs []error
	if m.Model != nil {
		errs = append(errs, m.Model.Close())
	}
	if m.Runtime != nil {
		errs = append(errs, m.Runtime.Close())
	}
	errs = append(errs, m.dense.close())
	if m.files != nil {
		errs = append(errs, m.files.Close())
	}
	return errors.Join(errs...)
}
