package synthckpt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"outrider/layout"
)

// builder turns a family's statements into a Model: first what they declare,
// where later ones override earlier ones, then settings and tensors in order.
type builder struct {
	lib    *library
	family *family
	body   []statement // with parts and other families in their places
	opts   Options

	lets    []let
	vars    map[string]int64
	types   map[string]string
	rounds  map[string]int64
	prefix  string
	experts string // schemes
	others  string
	kinds   [][]string // of each block
	first   []string
	cycle   []string
	predict string
	// multiples are sizes that the family cannot divide otherwise.
	multiples []statement
	dropped   map[string]bool
	nest      string // what keys of settings stand under now

	out *Model
}

// let is a size that a family names.
type let struct {
	name, text string
	s          statement
}

func newBuilder(lib *library, f *family, opts Options) (*builder, error) {
	b := &builder{lib: lib, family: f, opts: opts, prefix: "model.", types: map[string]string{}, rounds: map[string]int64{},
		dropped: map[string]bool{}, out: &Model{Info: f.Info, seed: opts.Seed, stem: "model", configName: "config.json"}}
	var err error
	if b.body, err = lib.expand(f.body, f.Format, 0); err != nil {
		return nil, err
	}
	for _, s := range b.body {
		if err := b.declare(s); err != nil {
			return nil, err
		}
	}
	b.measure()
	for _, l := range b.lets {
		v, err := eval(l.text, b.vars)
		if err != nil {
			return nil, l.s.errorf("%v", err)
		}
		b.vars[l.name] = v
	}
	for _, s := range b.multiples {
		if n, err := strconv.ParseInt(s.words[2], 10, 32); err != nil || n < 1 || b.vars[s.words[1]]%n != 0 {
			return nil, fmt.Errorf("synthckpt: %w: %s is %d, but %s needs a multiple of %s", ErrOptions, s.words[1], b.vars[s.words[1]], f.Name, s.words[2])
		}
	}
	return b, b.blocks()
}

// declare takes the statements that only say what others mean.
func (b *builder) declare(s statement) error {
	w := s.words
	switch {
	case w[0] == "let" && len(w) == 3:
		l := let{w[1], w[2], s}
		if i := slices.IndexFunc(b.lets, func(o let) bool { return o.name == w[1] }); i >= 0 {
			b.lets[i] = l
		} else {
			b.lets = append(b.lets, l)
		}
	case w[0] == "type" && len(w) == 3:
		b.types[w[1]] = w[2]
	case w[0] == "round" && len(w) == 3:
		n, err := strconv.ParseInt(w[2], 10, 32)
		if err != nil || n < 1 {
			return s.errorf("%q is no multiple", w[2])
		}
		b.rounds[w[1]] = n
	case w[0] == "multiple" && len(w) == 3:
		b.multiples = append(b.multiples, s)
	case w[0] == "prefix" && len(w) <= 2:
		b.prefix = strings.Join(w[1:], "")
	case w[0] == "experts" && len(w) == 2:
		b.experts = w[1]
	case w[0] == "others" && len(w) == 2:
		b.others = w[1]
	case w[0] == "behind" && len(w) <= 2:
		b.predict = strings.Join(w[1:], "")
	case w[0] == "files" && len(w) == 3:
		b.out.stem, b.out.configName = w[1], w[2]
	case w[0] == "blocks":
		b.first, b.cycle = w[1:], nil
		if i := slices.Index(w, "|"); i >= 0 {
			b.first, b.cycle = w[1:i], w[i+1:]
		}
	case w[0] == "drop" && len(w) == 2:
		b.dropped[w[1]] = true
	case slices.Contains(declarations, w[0]):
		return s.errorf("%s has %d words", w[0], len(w))
	}
	return nil
}

// measure sets the sizes that are given.
func (b *builder) measure() {
	up := func(n int, unit int64) int64 {
		unit = max(unit, 1)
		return (int64(n) + unit - 1) / unit * unit
	}
	b.vars = map[string]int64{
		"H": up(b.opts.Hidden, b.rounds["H"]), "F": up(b.opts.FFN, b.rounds["F"]),
		"E": int64(b.opts.Experts), "K": int64(b.opts.TopK), "N": int64(b.opts.Layers), "B": int64(b.opts.Layers),
	}
	if b.predict != "" {
		b.vars["B"]++
	}
	b.out.Hidden, b.out.FFN = int(b.vars["H"]), int(b.vars["F"])
}

// blocks works out the kinds of all blocks.
func (b *builder) blocks() error {
	for n := range b.opts.Layers {
		switch {
		case n < len(b.first):
			b.kinds = append(b.kinds, strings.Split(b.first[n], "+"))
		case len(b.cycle) > 0:
			b.kinds = append(b.kinds, strings.Split(b.cycle[(n-len(b.first))%len(b.cycle)], "+"))
		default:
			return fmt.Errorf("synthckpt: %w: %s has at most %d layers", ErrOptions, b.family.Name, len(b.first))
		}
	}
	if b.predict != "" {
		b.kinds = append(b.kinds, append(strings.Split(b.predict, "+"), "predict"))
	}
	return nil
}

// declarations are the statements that declare took.
var declarations = []string{"let", "type", "round", "prefix", "experts", "others", "behind", "blocks", "drop", "multiple", "files"}

func (b *builder) model() (*Model, error) {
	var before, inside, behind []tensorLine
	for _, s := range b.body {
		if slices.Contains(declarations, s.words[0]) {
			continue
		}
		switch s.words[0] {
		case "nest":
			b.nest = strings.Join(s.words[1:], "")
			continue
		case "set", "byblock":
			if err := b.set(s); err != nil {
				return nil, err
			}
			continue
		}
		t, err := parseTensor(s)
		switch {
		case err != nil:
			return nil, err
		case b.dropped[t.name]:
		case t.kind != "once":
			inside = append(inside, t)
		case len(inside) == 0:
			before = append(before, t)
		default:
			behind = append(behind, t)
		}
	}
	if err := b.add(before, inside, behind); err != nil {
		return nil, err
	}
	return b.out, b.finish()
}

// add makes the tensors: of the model, of its blocks one after the other, of the model.
func (b *builder) add(before, inside, behind []tensorLine) error {
	for _, t := range before {
		if err := b.tensor(t, -1); err != nil {
			return err
		}
	}
	for n, kinds := range b.kinds {
		for _, t := range inside {
			if t.kind != "each" && !slices.Contains(kinds, t.kind) {
				continue
			}
			t.predict = t.predict || slices.Contains(kinds, "predict")
			if err := b.tensor(t, n); err != nil {
				return err
			}
		}
	}
	for _, t := range behind {
		if err := b.tensor(t, -1); err != nil {
			return err
		}
	}
	return nil
}

// finish finds the MoE layers, and adds what only code can make.
func (b *builder) finish() error {
	blocks := map[int]bool{}
	for i := range b.out.Tensors {
		if t := &b.out.Tensors[i]; t.Routed && !t.Predict {
			blocks[t.Block] = true
		}
	}
	if len(blocks) == 0 {
		return fmt.Errorf("synthckpt: %w: none of %d layers of %s has experts, want more layers", ErrOptions, b.opts.Layers, b.family.Name)
	}
	ids := slices.Sorted(maps.Keys(blocks))
	shape := layout.Shape{Layers: len(ids), Experts: b.opts.Experts, TopK: b.opts.TopK}
	if ids[len(ids)-1] != len(ids)-1 {
		shape.LayerIDs = ids
	}
	if err := shape.Validate(); err != nil {
		return fmt.Errorf("synthckpt: %w: %w", ErrOptions, err)
	}
	b.out.Shape = shape
	if b.family.Format == GGUF {
		b.out.Settings = append(b.out.Settings, Setting{"general.name", "synthetic " + b.family.Name})
	}
	for _, s := range b.out.Settings {
		if s.Key == "tokenizer.ggml.model" && s.Value == "llama" {
			return b.tokenizer()
		}
	}
	return nil
}
