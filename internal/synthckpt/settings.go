package synthckpt

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var fraction = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$`)

// set adds one setting; one that stands already is replaced.
func (b *builder) set(s statement) error {
	if len(s.words) < 3 {
		return s.errorf("%s wants a key and a value", s.words[0])
	}
	key := s.words[1]
	switch {
	case strings.HasPrefix(key, "."):
		key = b.out.Architecture + key
	case b.nest != "":
		key = b.nest + "." + key
	}
	var v any
	var err error
	if s.words[0] == "byblock" {
		v, err = b.byBlock(s)
	} else {
		v, err = b.value(s, strings.Join(s.words[2:], " "))
	}
	if err != nil {
		return err
	}
	if text, ok := v.(string); ok && (key == "general.architecture" || key == "model_type") {
		b.out.Architecture = text
	}
	made := Setting{Key: key, Value: v}
	if i := slices.IndexFunc(b.out.Settings, func(o Setting) bool { return o.Key == key }); i >= 0 {
		b.out.Settings[i] = made
	} else {
		b.out.Settings = append(b.out.Settings, made)
	}
	return nil
}

// value reads what stands behind a key.
func (b *builder) value(s statement, text string) (any, error) {
	switch {
	case text == "true", text == "false":
		return text == "true", nil
	case text == "null":
		return nil, nil
	case len(text) > 1 && text[0] == '"' && text[len(text)-1] == '"':
		return text[1 : len(text)-1], nil
	case len(text) > 1 && text[0] == '[' && text[len(text)-1] == ']':
		list := []any{}
		for _, word := range splitWords(text[1 : len(text)-1]) {
			v, err := b.value(s, word)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case strings.ContainsAny(text, ".e-") && fraction.MatchString(text):
		return strconv.ParseFloat(text, 64)
	}
	v, err := eval(text, b.vars)
	if err != nil {
		return nil, s.errorf("%v", err)
	}
	return v, nil
}

// byBlock makes a list of one value for each block, by the first kind that fits.
func (b *builder) byBlock(s statement) (any, error) {
	list := []any{}
	kinds := b.kinds
	if b.family.Format == Safetensors { // config.json does not count what predicts
		kinds = kinds[:b.opts.Layers]
	}
	for n, kinds := range kinds {
		found := false
		for _, word := range s.words[2:] {
			kind, text, ok := strings.Cut(word, "=")
			if !ok {
				return nil, s.errorf("%q is no KIND=VALUE", word)
			}
			if kind != "else" && !slices.Contains(kinds, kind) {
				continue
			}
			v, err := b.value(s, text)
			if err != nil {
				return nil, err
			}
			list, found = append(list, v), true
			break
		}
		if !found {
			return nil, s.errorf("block %d is of no kind that is named, and there is no else", n)
		}
	}
	return list, nil
}
