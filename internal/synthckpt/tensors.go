package synthckpt

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxTensors bounds a checkpoint: the largest published ones have 200,000.
const maxTensors = 1 << 20

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
	count := int64(1)
	if strings.Contains(t.name, "{e}") {
		count = b.vars["E"]
		if over, ok := t.options["over"]; ok {
			var err error
			if count, err = eval(over, b.vars); err != nil {
				return t.s.errorf("%v", err)
			}
		}
	}
	for e := range count {
		name := strings.NewReplacer("{p}", b.prefix, "{n}", strconv.Itoa(block), "{e}", strconv.FormatInt(e, 10)).Replace(t.name)
		if err := b.named(t, name, block); err != nil {
			return err
		}
	}
	return nil
}

// named adds one tensor, or those of one linear layer.
func (b *builder) named(t tensorLine, name string, block int) error {
	if !t.linear {
		return b.stored(t, name, block, b.vars)
	}
	scheme := b.others
	if t.routed {
		scheme = b.experts
	}
	lines, ok := b.lib.schemes[scheme]
	if !ok {
		return t.s.errorf("scheme %q of linear layers is not known", scheme)
	}
	out, err1 := eval(t.sizes[0], b.vars)
	in, err2 := eval(t.sizes[1], b.vars)
	if err1 != nil || err2 != nil {
		return t.s.errorf("%v %v", err1, err2)
	}
	vars := maps.Clone(b.vars)
	vars["OUT"], vars["IN"] = out, in
	for _, s := range lines {
		if len(s.words) < 2 {
			return s.errorf("a scheme's line has a suffix and a type")
		}
		side := t
		side.s, side.typ = s, s.words[1]
		var err error
		if side.sizes, side.options, err = splitOptions(s, s.words[2:]); err != nil {
			return err
		}
		if parts, ok := t.options["parts"]; ok {
			side.options["parts"] = parts
		}
		if err := b.stored(side, name+s.words[0], block, vars); err != nil {
			return err
		}
	}
	return nil
}

// stored adds one tensor, or its tensor-parallel parts.
func (b *builder) stored(t tensorLine, name string, block int, vars map[string]int64) error {
	made := Tensor{Name: name, Type: t.typ, Routed: t.routed, Block: block, Predict: t.predict}
	if typ, ok := b.types[t.typ]; ok {
		made.Type = typ
	}
	for _, size := range t.sizes {
		d, err := eval(size, vars)
		if err != nil {
			return t.s.errorf("%s: %v", name, err)
		}
		made.Dims = append(made.Dims, d)
	}
	var err error
	if made.Bytes, err = sizeOf(b.family.Format, made.Type, made.Dims); err != nil {
		return t.s.errorf("%s: %s %v: %v", name, made.Type, made.Dims, err)
	}
	if made.rule, err = ruleOf(t.options["data"], name, made.Type, made.Dims, vars); err != nil {
		return t.s.errorf("%s: %v", name, err)
	}
	parts := int64(0)
	if text, ok := t.options["parts"]; ok {
		if parts, err = eval(text, vars); err != nil {
			return t.s.errorf("%s: %v", name, err)
		}
	}
	if len(b.out.Tensors)+int(max(parts, 1)) > maxTensors {
		return t.s.errorf("more than %d tensors", maxTensors)
	}
	if parts == 0 {
		b.out.Tensors = append(b.out.Tensors, made)
		return nil
	}
	for p := range int(parts) {
		made.Part = p + 1
		made.Dims = slices.Clone(made.Dims)
		b.out.Tensors = append(b.out.Tensors, made)
	}
	return nil
}
