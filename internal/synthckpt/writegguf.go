package synthckpt

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"outrider/layout/gguf"
)

const ggufSuffix = ".gguf"

func (o *output) gguf() error {
	if !strings.HasSuffix(o.to.Out, ggufSuffix) {
		return fmt.Errorf("%w: the name of a GGUF file ends in %s", ErrOptions, ggufSuffix)
	}
	w := &gguf.Writer{}
	for _, s := range o.model.Settings {
		v, err := ggufValue(s.Value)
		if err != nil {
			return fmt.Errorf("key %s: %w", s.Key, err)
		}
		w.Set(s.Key, v)
	}
	for i := range o.model.Tensors {
		t := &o.model.Tensors[i]
		typ, _ := gguf.ParseType(t.Type) // known: its size is
		w.Tensor(t.Name, typ, t.Dims, o.data(t))
	}
	folder, name := filepath.Split(o.to.Out)
	if o.to.Shards == 1 {
		return o.whole(folder, name, func(out io.Writer) error {
			_, err := w.WriteTo(out)
			return err
		})
	}
	_, err := w.WriteShards(strings.TrimSuffix(name, ggufSuffix), w.Shards(o.to.Shards), o.create(folder))
	return err
}

// ggufValue is a setting as metadata has it: numbers of 32 bits, lists of one kind.
func ggufValue(v any) (any, error) {
	switch v := v.(type) {
	case string, bool:
		return v, nil
	case int64:
		if v != int64(uint32(v)) {
			return nil, fmt.Errorf("%d does not fit 32 bits", v)
		}
		return uint32(v), nil
	case float64:
		return float32(v), nil
	case []string, []int32, []float32:
		return v, nil
	case []any:
		return ggufList(v)
	}
	return nil, fmt.Errorf("a value of type %T", v)
}

func ggufList(list []any) (any, error) {
	var numbers []int32
	var texts []string
	var flags []bool
	for _, v := range list {
		switch v := v.(type) {
		case int64:
			numbers = append(numbers, int32(v))
		case string:
			texts = append(texts, v)
		case bool:
			flags = append(flags, v)
		}
	}
	switch len(list) {
	case len(texts):
		return texts, nil
	case len(flags):
		return flags, nil
	case len(numbers):
		return numbers, nil
	}
	return nil, fmt.Errorf("list %v is of several kinds", list)
}
