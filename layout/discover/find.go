package discover

import (
	"strings"

	"outrider/layout"
)

// Find says where the model's routed experts lie, and what all other tensors
// are. Input is not changed; the result shares its Files and, as SourceDims, its
// tensors' Dims.
//
// Errors are a *layout.FormatError: ErrNoExperts if no tensor has a routed
// expert's name; ErrExperts, naming tensors, for everything that does not fit.
func Find(in Input, opts Options) (layout.Checkpoint, error) {
	f := &finder{Input: in, opts: opts, stackOf: map[string]int{}, marked: map[place]bool{}, routers: map[place]*routerParts{}}
	for _, step := range []func() error{f.collect, f.chooseStack, f.chooseLayers, f.countExperts, f.dropDense, f.checkRouters} {
		if err := step(); err != nil {
			return layout.Checkpoint{}, err
		}
	}
	shape, err := f.shape()
	if err != nil {
		return layout.Checkpoint{}, err
	}
	cp := layout.Checkpoint{Format: in.Format, Name: in.Facts.Name, Architecture: in.Facts.Architecture, Shape: shape, Files: in.Files}
	for i := range f.layers {
		layer, err := f.layer(&f.layers[i])
		if err != nil {
			return layout.Checkpoint{}, err
		}
		cp.Layers = append(cp.Layers, layer)
	}
	if err := f.compareLayers(); err != nil {
		return layout.Checkpoint{}, err
	}
	cp.Family = f.family()
	cp.Routers, cp.NoRouters = f.findRouters(shape)
	if err := f.account(&cp); err != nil {
		return layout.Checkpoint{}, err
	}
	return cp, nil
}

func (f *finder) pattern() string {
	if f.Format == "gguf" {
		return llamaPattern
	}
	return publishedPattern
}

// none is the error for a checkpoint without experts: what was looked for, and
// some of the names that are there.
func (f *finder) none() error {
	return f.fail(ErrNoExperts, nil, "none of %d tensors is named %s (architecture %q): a dense model, or names of a newer kind; there is %s",
		len(f.Tensors), f.pattern(), f.Facts.Architecture, f.sample())
}

// sample lists a few names, those first that could be experts' all the same.
func (f *finder) sample() string {
	const most = 4
	var likely, others []string
	for i := range f.Tensors {
		name := f.Tensors[i].Name
		if lower := strings.ToLower(name); strings.Contains(lower, "exp") || strings.Contains(lower, "moe") {
			likely = append(likely, name)
		} else if len(others) < most {
			others = append(others, name)
		}
		if len(likely) == most {
			break
		}
	}
	names := append(likely, others...)
	if len(names) == 0 {
		return "none at all"
	}
	return strings.Join(names[:min(most, len(names))], ", ")
}
