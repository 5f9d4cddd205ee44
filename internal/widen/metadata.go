package widen

import (
	"math"
	"strings"

	"outrider/layout/gguf"
)

// setting is one key of the enlarged model's metadata.
type setting struct {
	key   string
	value any // as gguf.Writer takes it
}

// sized are the keys, below the architecture's prefix, that count a side.
var sized = map[string]side{
	"embedding_length":                  stream,
	"feed_forward_length":               inner,
	"expert_feed_forward_length":        inner,
	"expert_shared_feed_forward_length": inner,
	"attention.head_count":              heads,
	"attention.head_count_kv":           heads,
}

// metadata is the source's metadata with the sizes that change, and with those
// written out that readers would work out from the stream's width.
func (p *Plan) metadata() error {
	prefix := p.file.Architecture() + "."
	p.align = p.file.Align()
	for key, value := range p.file.ModelMeta() { // of one file: no split.*
		var setTo any = value
		if name, ours := strings.CutPrefix(key, prefix); ours && p.factor(sized[name]) > 1 {
			var err error
			if setTo, err = scaled(key, value, p.factor(sized[name])); err != nil {
				return err
			}
		}
		p.settings = append(p.settings, setting{key, setTo})
	}
	return p.headSizes(prefix)
}

// headSizes writes the head's width, which is the stream's width over the number of
// heads where nothing else is said.
func (p *Plan) headSizes(prefix string) error {
	for _, name := range []string{"attention.key_length", "attention.value_length", "rope.dimension_count"} {
		if _, said := p.file.Meta(prefix + name); said {
			continue
		}
		// RoPE turns the whole key by default.
		width, known := p.number("attention.key_length")
		if !known || name == "attention.value_length" {
			count, ok := p.number("attention.head_count")
			if !ok || count < 1 || p.streamWidth%count != 0 {
				return refuse("metadata has no %s%s, and %sattention.head_count gives none: set it in the small model", prefix, name, prefix)
			}
			width = p.streamWidth / count
		}
		p.settings = append(p.settings, setting{prefix + name, uint32(width)})
	}
	return nil
}

// required is number of a key that must be there, at least 1.
func (p *Plan) required(name string) (int64, error) {
	n, ok := p.number(name)
	if !ok || n < 1 {
		value, _ := p.file.ArchMeta(name)
		return 0, refuse("metadata %s.%s is %q, want a number from 1 to %d", p.Architecture, name, value, maxSide)
	}
	return n, nil
}

// number is an integer of the architecture's metadata, 0 to maxSide.
func (p *Plan) number(name string) (int64, bool) {
	value, _ := p.file.ArchMeta(name)
	n, ok := value.Int()
	return n, ok && n >= 0 && n <= maxSide
}

// scaled is an integer, or a list of them (one a layer), times a factor, in the same kind.
func scaled(key string, v gguf.Value, factor int64) (any, error) {
	list, isList := v.Ints()
	if !isList {
		n, ok := v.Int()
		if !ok {
			return nil, refuse("metadata %s is %v, want an integer", key, v)
		}
		list = []int64{n}
	}
	for i, n := range list {
		if n < 0 || n > math.MaxInt32/factor {
			return nil, refuse("metadata %s: %d times %d is out of range", key, n, factor)
		}
		list[i] = n * factor
	}
	return ofKind(key, v.Elem(), list, isList)
}

// ofKind gives numbers the kind that they had.
func ofKind(key string, kind gguf.Kind, list []int64, isList bool) (any, error) {
	switch kind {
	case gguf.KindUint32:
		return converted[uint32](list, isList), nil
	case gguf.KindInt32:
		return converted[int32](list, isList), nil
	case gguf.KindUint64:
		return converted[uint64](list, isList), nil
	case gguf.KindInt64:
		return converted[int64](list, isList), nil
	}
	return nil, refuse("metadata %s is %v, want an integer of 32 or 64 bits", key, kind)
}

func converted[T int32 | uint32 | int64 | uint64](list []int64, isList bool) any {
	out := make([]T, len(list))
	for i, n := range list {
		out[i] = T(n)
	}
	if isList {
		return out
	}
	return out[0]
}
