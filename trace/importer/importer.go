package importer

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"outrider/trace"
)

var (
	// ErrUnknownForm: no form fits the content, or Options.From names none.
	ErrUnknownForm = errors.New("unknown form of routing data")

	// ErrNeedShape: the form does not tell all of the model's shape, and
	// Options do not either.
	ErrNeedShape = errors.New("the form does not tell the model's shape")

	// ErrLossy: the form left out what a trace needs, so nothing was read.
	ErrLossy = errors.New("the recording is incomplete")

	// ErrHistogram: the data is counts without order, where order matters.
	ErrHistogram = errors.New("a histogram has no order")
)

// Options tell what a form does not. The zero value works for forms that tell
// all themselves.
type Options struct {
	// From is the name of a form (see Forms); empty finds it by content.
	From string

	// Layers, Experts and TopK of the model where the form does not tell them; 0
	// where it does. What is given must agree with what the form tells. Where the
	// number of experts is all that is missing, the least that the ids allow is
	// taken, which costs one more reading, and Notes say so.
	Layers, Experts, TopK int
	// LayerIDs is the block number of each MoE layer, for forms that number
	// layers from 0; nil leaves them as they are.
	LayerIDs []int

	// Model is the model's name where the form does not tell it.
	Model string

	// Prompt is how many tokens at the start of each sequence are the prompt, for
	// forms that hold prompt and output in one; 0 leaves phases unknown.
	Prompt int
}

// Form is one way to write routing data.
type Form struct {
	Name      string // what Options.From takes: "vllm-npy"
	Tool      string // who writes it
	Title     string // what it is, in a few words
	Histogram bool   // counts without order
}

// Forms lists the forms, ours first.
func Forms() []Form {
	var list []Form
	for _, f := range forms {
		list = append(list, f.Form)
	}
	return list
}

// Import is routing data that was opened: a trace.Stream, or a histogram. For
// one goroutine at a time; whoever opened it closes it.
type Import struct {
	Form      Form
	Histogram *trace.Histogram // nil for a trace
	in        *input
	stream    trace.Stream
	close     func() error
}

var _ trace.Stream = (*Import)(nil)

// Open opens routing data. Paths are the files of one recording (most forms are
// one file), or one folder that holds them. Compressed files (gzip, zstd) are
// read as they are.
//
// Errors: those of the file system, ErrUnknownForm, ErrNeedShape, ErrLossy, and
// *trace.CorruptError for damage.
func Open(paths []string, o Options) (*Import, error) {
	in, err := newInput(paths, o)
	if err != nil {
		return nil, err
	}
	f, err := choose(in)
	if err != nil {
		return nil, err
	}
	if len(in.files) > 1 && !f.several {
		return nil, fmt.Errorf("importer: %s is one file (%s), but %d were given: name one of them", f.Name, f.Title, len(in.files))
	}
	c, err := f.open(in)
	if onlyExperts(err) {
		c, err = openWithLeast(f, in, err)
	}
	if err != nil {
		return nil, inForm(f, err)
	}
	return newImport(f, in, c)
}

// openWithLeast opens data that tells all but the number of experts with the
// least there can be, and says so.
func openWithLeast(f *form, in *input, needed error) (*content, error) {
	n, err := leastExperts(f, in)
	if err != nil {
		return nil, err
	}
	if in.opts.Experts = n; n < max(in.opts.TopK, 1) {
		return nil, needed
	}
	in.note("The form does not tell how many experts a layer has. Its ids go up to %d, so %d is assumed, which is the least there can be: give --experts if there are more.", n-1, n)
	return f.open(in)
}

// content is what a form's opener found: a stream, tokens to be emitted, or a
// histogram.
type content struct {
	header    trace.Header
	emit      func(emitter) error // tokens in order; needs header
	stream    trace.Stream        // a stream that checks itself
	close     func() error        // of stream
	histogram *trace.Histogram
}

func newImport(f *form, in *input, c *content) (*Import, error) {
	i := &Import{Form: f.Form, in: in, close: func() error { return nil }}
	switch {
	case c.histogram != nil:
		h := c.histogram
		if h.Model == "" {
			h.Model = in.opts.Model
		}
		if err := h.Validate(); err != nil {
			return nil, inForm(f, in.files[0].damaged(place{}, "%v", err))
		}
		i.Histogram = h
	case c.stream != nil:
		i.stream = c.stream
		if c.close != nil {
			i.close = c.close
		}
	default:
		if err := complete(&c.header, in); err != nil {
			return nil, inForm(f, err)
		}
		p := newPuller(f, c.header, c.emit)
		i.stream, i.close = p, p.stop
	}
	return i, nil
}

// complete adds to a header what the options tell.
func complete(h *trace.Header, in *input) error {
	if h.Model == "" {
		h.Model = in.opts.Model
	}
	if ids := in.opts.LayerIDs; h.Shape.LayerIDs == nil && ids != nil {
		if len(ids) != h.Shape.Layers {
			return fmt.Errorf("%d layer ids were given, but the data has %d layers", len(ids), h.Shape.Layers)
		}
		h.Shape.LayerIDs = ids
	}
	if err := h.Validate(); err != nil {
		return in.files[0].damaged(place{}, "%v", err)
	}
	return nil
}

// inForm says which form an error is about.
func inForm(f *form, err error) error {
	return fmt.Errorf("importer: %s: %w", f.Name, err)
}

// Header describes the trace; a histogram has none.
func (i *Import) Header() trace.Header {
	if i.stream == nil {
		return trace.Header{}
	}
	return i.stream.Header()
}

// Next reads the next token; see trace.Stream. Of a histogram it is
// ErrHistogram.
func (i *Import) Next(a *trace.Activation) error {
	if i.stream == nil {
		return i.NoOrder()
	}
	return i.stream.Next(a)
}

// NoOrder is the error for those who need tokens in order: nil for a trace.
func (i *Import) NoOrder() error {
	if i.Histogram == nil {
		return nil
	}
	return fmt.Errorf("importer: %s: %w: it counts uses, so caches and forecasts cannot be judged by it; record a trace instead (docs/trace-forms.md says how)",
		i.in.files[0].path, ErrHistogram)
}

// Notes are what was left out or could not be told, in sentences. They are
// complete once Next has returned io.EOF.
func (i *Import) Notes() []string { return i.in.notes }

// Close frees what is held. A second Close does nothing.
func (i *Import) Close() error {
	closing := i.close
	i.close = func() error { return nil }
	return closing()
}

// ReadAll is trace.ReadAll of an import: up to max tokens in memory, 0 for all.
func (i *Import) ReadAll(max int) (*trace.Trace, error) {
	if err := i.NoOrder(); err != nil {
		return nil, err
	}
	return trace.ReadAll(i, max)
}

// choose finds the form of the input.
func choose(in *input) (*form, error) {
	if name := in.opts.From; name != "" {
		for k := range forms {
			if forms[k].Name == name {
				return &forms[k], nil
			}
		}
		return nil, fmt.Errorf("importer: %w: %q: choose one of %s", ErrUnknownForm, name, strings.Join(names(), ", "))
	}
	p, err := in.peek()
	if err != nil {
		return nil, err
	}
	var found []*form
	for k := range forms {
		if forms[k].sniff != nil && forms[k].sniff(p) {
			found = append(found, &forms[k])
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("importer: %s: %w: it begins with %q, by which none of %d forms can be told; if you know its form, name it with --from (outrider trace forms lists them)",
			in.files[0].path, ErrUnknownForm, p.head[:min(len(p.head), 40)], len(forms))
	}
	return nil, fmt.Errorf("importer: %s: %w: it may be %s or %s: say which with --from", in.files[0].path, ErrUnknownForm, found[0].Name, found[1].Name)
}

func names() []string {
	var list []string
	for _, f := range forms {
		list = append(list, f.Name)
	}
	return list
}

// endOf turns a read error in the middle of something into a damage report.
func endOf(f *file, at place, err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return f.damaged(at, "the file ends inside %s", what)
	}
	return f.failed(err)
}
