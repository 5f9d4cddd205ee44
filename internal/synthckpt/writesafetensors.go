package synthckpt

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"outrider/layout/safetensors"
)

func (o *output) safetensors() error {
	config, err := o.model.config()
	if err != nil {
		return err
	}
	if err := o.to.FS.Mkdir(o.to.Out); err != nil {
		return err
	}
	o.folder = true
	if err := o.weights(); err != nil {
		return err
	}
	return o.whole(o.to.Out, o.model.configName, func(out io.Writer) error {
		_, err := out.Write(config)
		return err
	})
}

// weights writes the files of tensors: one, several with an index, or those of
// tensor-parallel parts, which no index can tell apart.
func (o *output) weights() error {
	parts := 0
	for i := range o.model.Tensors {
		parts = max(parts, o.model.Tensors[i].Part)
	}
	if parts > 0 {
		for part := range parts + 1 {
			if err := o.part(part); err != nil {
				return err
			}
		}
		return nil
	}
	w := o.writer(0)
	if o.to.Shards == 1 {
		return o.whole(o.to.Out, o.model.stem+".safetensors", func(out io.Writer) error {
			_, err := w.WriteTo(out)
			return err
		})
	}
	return w.WriteShards(o.model.stem, w.CutShards(o.to.Shards), o.create(o.to.Out))
}

// writer has the tensors of one tensor-parallel part, or all whole ones.
func (o *output) writer(part int) *safetensors.Writer {
	w := &safetensors.Writer{}
	w.Meta("format", "pt")
	for i := range o.model.Tensors {
		if t := &o.model.Tensors[i]; t.Part == part {
			w.Tensor(t.Name, t.Type, t.Dims, o.data(t))
		}
	}
	return w
}

// part writes the files of one part: "…-TP-common" for what is whole, "…-TP-000"
// and so on for the parts. Several shards are numbered before that.
func (o *output) part(part int) error {
	mark := "common"
	if part > 0 {
		mark = fmt.Sprintf("%03d", part-1)
	}
	counts := o.writer(part).CutShards(o.to.Shards)
	from := 0
	for i, n := range counts {
		w := &safetensors.Writer{}
		w.Meta("format", "pt")
		for seen := 0; seen < n; from++ {
			if t := &o.model.Tensors[from]; t.Part == part {
				w.Tensor(t.Name, t.Type, t.Dims, o.data(t))
				seen++
			}
		}
		name := fmt.Sprintf("pytorch_model-%05d-TP-%s.safetensors", i, mark)
		err := o.whole(o.to.Out, name, func(out io.Writer) error {
			_, err := w.WriteTo(out)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// config is the text of config.json. Dots in keys nest objects.
func (m *Model) config() ([]byte, error) {
	root := map[string]any{}
	for _, s := range m.Settings {
		path := strings.Split(s.Key, ".")
		at := root
		for _, key := range path[:len(path)-1] {
			inner, ok := at[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[key] = inner
			}
			at = inner
		}
		at[path[len(path)-1]] = s.Value
	}
	text, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return append(text, '\n'), nil
}
