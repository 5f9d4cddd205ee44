package synthckpt

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxTensors bounds a checkpoint: the largest published ones have 200,000.
const maxTensors = 1 << 20

// maxParts is as many tensor-parallel parts as three digits can number.
const maxParts = 999

// tensorLine is a statement that makes tensors.
type tensorLine struct {
	kind                    string
	routed, linear, predict bool
	name, typ               string
	sizes                   []string
	options                 map[string]string
	s                       statement
}

func parseTensor(s statement) (tensorLine, error) {
	t := tensorLine{kind: s.words[0], s: s}
	rest := s.words[1:]
	for ; len(rest) > 0; rest = rest[1:] {
		switch rest[0] {
		case "routed":
			t.routed = true
			continue
		case "linear":
			t.linear = true
			continue
		case "predict":
			t.predict = true
			continue
		}
		break
	}
	if len(rest) == 0 {
		return t, s.errorf("a tensor has no name")
	}
	t.name, rest = rest[0], rest[1:]
	if !t.linear {
		if len(rest) == 0 {
			return t, s.errorf("%s has no type", t.name)
		}
		t.typ, rest = rest[0], rest[1:]
	}
	var err error
	t.sizes, t.options, err = splitOptions(s, rest)
	if err == nil && t.linear && len(t.sizes) != 2 {
		err = s.errorf("%s has %d sizes, want OUT and IN", t.name, len(t.sizes))
	}
	return t, err
}

// splitOptions separates sizes from "name=value".
func splitOptions(s statement, words []string) (sizes []string, options map[string]string, err error) {
	options = map[string]string{}
	for _, w := range words {
		key, value, ok := strings.Cut(w, "=")
		switch {
		case !ok:
			sizes = append(sizes, w)
		case key == "over" || key == "parts" || key == "data":
			options[key] = value
		default:
			return nil, nil, s.errorf("option %q is not known", key)
		}
	}
	return sizes, options, nil
}

// tensor adds a line's tensors of one block.
func (b *builder) tensor(t tensorLine, block int) error {
	count, err := b.count(t)
	if err != nil {
		return err
	}
	made, err := b.stored(t)
	if err != nil {
		return err
	}
	if n := int64(len(made)) * count; n > maxTensors-int64(len(b.out.Tensors)) {
		return fmt.Errorf("synthckpt: %w: more than %d tensors", ErrOptions, maxTensors)
	}
	named := strings.NewReplacer("{p}", b.prefix, "{n}", strconv.Itoa(block))
	for i := range made {
		made[i].Block, made[i].Predict = block, t.predict
		made[i].Name = named.Replace(made[i].Name)
	}
	b.out.Tensors = slices.Grow(b.out.Tensors, len(made)*int(count))
	for e := range count {
		for _, x := range made {
			x.Name = strings.Replace(x.Name, "{e}", strconv.FormatInt(e, 10), 1)
			b.out.Tensors = append(b.out.Tensors, x)
		}
	}
	return nil
}

// count is how many experts a line makes tensors for, 1 if it names none.
func (b *builder) count(t tensorLine) (int64, error) {
	if !strings.Contains(t.name, "{e}") {
		return 1, nil
	}
	over, ok := t.options["over"]
	if !ok {
		return b.vars["E"], nil
	}
	n, err := eval(over, b.vars)
	if err != nil {
		return 0, t.s.errorf("%v", err)
	}
	return n, nil
}

// stored lists what a line stores for one expert: one tensor, or those of a
// linear layer, and of each its tensor-parallel parts. Names are not filled in.
func (b *builder) stored(t tensorLine) ([]Tensor, error) {
	if !t.linear {
		return b.parts(t, t.name, b.vars)
	}
	scheme := b.others
	if t.routed {
		scheme = b.experts
	}
	lines, ok := b.lib.schemes[scheme]
	if !ok {
		return nil, t.s.errorf("scheme %q of linear layers is not known", scheme)
	}
	vars := maps.Clone(b.vars)
	for i, name := range []string{"OUT", "IN"} {
		v, err := eval(t.sizes[i], b.vars)
		if err != nil {
			return nil, t.s.errorf("%s: %v", t.name, err)
		}
		vars[name] = v
	}
	var out []Tensor
	for _, s := range lines {
		if len(s.words) < 2 {
			return nil, s.errorf("a scheme's line has a suffix and a type")
		}
		side := t
		side.s, side.typ = s, s.words[1]
		var err error
		if side.sizes, side.options, err = splitOptions(s, s.words[2:]); err != nil {
			return nil, err
		}
		if parts, ok := t.options["parts"]; ok {
			side.options["parts"] = parts
		}
		more, err := b.parts(side, t.name+s.words[0], vars)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// parts is one tensor, or its tensor-parallel parts.
func (b *builder) parts(t tensorLine, name string, vars map[string]int64) ([]Tensor, error) {
	made := Tensor{Name: name, Type: t.typ, Routed: t.routed}
	if typ, ok := b.types[t.typ]; ok {
		made.Type = typ
	}
	for _, size := range t.sizes {
		d, err := eval(size, vars)
		if err != nil {
			return nil, t.s.errorf("%s: %v", name, err)
		}
		made.Dims = append(made.Dims, d)
	}
	var err error
	if made.Bytes, err = sizeOf(b.family.Format, made.Type, made.Dims); err != nil {
		return nil, t.s.errorf("%s: %s %v: %v", name, made.Type, made.Dims, err)
	}
	if made.rule, err = ruleOf(t.options["data"], name, made.Type, vars); err != nil {
		return nil, t.s.errorf("%s: %v", name, err)
	}
	text, ok := t.options["parts"]
	if !ok {
		return []Tensor{made}, nil
	}
	n, err := eval(text, vars)
	if err != nil || n > maxParts {
		return nil, t.s.errorf("%s: %d parts, want up to %d: %v", name, n, maxParts, err)
	}
	var out []Tensor
	for made.Part = 1; int64(made.Part) <= n; made.Part++ {
		out = append(out, made)
	}
	return out, nil
}
