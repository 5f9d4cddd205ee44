package export

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outrider/layout"
)

// tensor is one that is written, in the order of the files.
type tensor struct {
	name       string
	typ        string
	dims       []int64 // fastest first
	layer      int
	projection int
	first, end int   // its experts
	bytes      int64 // of all of them
	file       int   // which set of files it belongs to: see plan.stems
}

// plan is everything that is written, known before anything is.
type plan struct {
	format   string
	manifest *layout.Manifest
	tensors  []tensor // by file
	bytes    int64
	most     int64 // bytes of a file
	// stems name the sets of files: one, unless the checkpoint was cut for several
	// devices, with tensors of one name in several files.
	stems []string
}

// planOf lists the tensors of a store in the order of its layers.
func planOf(m *layout.Manifest, opts Options) (*plan, error) {
	if m.Source.Tensors == nil {
		return nil, fmt.Errorf("%w: it is of an older builder: build it again from the checkpoint", ErrNoTensors)
	}
	p := &plan{format: m.Source.Format, manifest: m, most: opts.ShardBytes, stems: []string{"model"}}
	if opts.Format != "" && opts.Format != p.format {
		return nil, fmt.Errorf("%w: it was built from a checkpoint in form %q and is not converted to %q", ErrFormat, p.format, opts.Format)
	}
	switch p.format {
	case GGUF:
		p.most, p.stems[0] = defaultTo(p.most, ggufFile), "experts"
	case Safetensors:
		p.most = defaultTo(p.most, safetensorsFile)
	default:
		return nil, fmt.Errorf("%w: it was built from a checkpoint in form %q, known are %s and %s", ErrFormat, p.format, GGUF, Safetensors)
	}
	for l, of := range m.Source.Tensors {
		for i := range of {
			p.add(l, i, &of[i])
		}
	}
	return p, p.spread()
}

func defaultTo(n, otherwise int64) int64 {
	if n <= 0 {
		return otherwise
	}
	return n
}

// add plans the tensors that a projection of a layer came from: one for all experts,
// or one for each.
func (p *plan) add(layer, projection int, from *layout.ManifestTensor) {
	proj := &p.manifest.Forms[p.manifest.Layers[layer]].Projections[projection]
	experts := p.manifest.Shape.Experts
	p.bytes += proj.Bytes * int64(experts)
	t := tensor{name: from.Name, typ: proj.Type, dims: from.Dims, layer: layer, projection: projection, end: experts, bytes: proj.Bytes * int64(experts)}
	if !from.PerExpert() {
		p.tensors = append(p.tensors, t)
		return
	}
	for e := range experts {
		t.name = strings.ReplaceAll(from.Name, layout.ExpertMark, strconv.Itoa(e))
		t.first, t.end, t.bytes = e, e+1, proj.Bytes
		p.tensors = append(p.tensors, t)
	}
}

// spread sees to it that no name comes twice in one set of files: parts of a tensor
// that was cut for several devices have one set each, what is whole another one.
func (p *plan) spread() error {
	count := make(map[string]int, len(p.tensors))
	cut := false
	for i := range p.tensors {
		count[p.tensors[i].name]++
		cut = cut || count[p.tensors[i].name] > 1
	}
	if !cut {
		return nil
	}
	if p.format != Safetensors {
		return fmt.Errorf("%w: several tensors have one name, which %s cannot hold", ErrFormat, p.format)
	}
	p.stems = []string{"model-TP-common"}
	for i := range p.tensors {
		t := &p.tensors[i]
		if count[t.name] == 1 {
			continue
		}
		part, ok := p.part(t)
		if !ok || part >= count[t.name] {
			return fmt.Errorf("%w: tensor %q is there %d times, and not in numbered parts", ErrFormat, t.name, count[t.name])
		}
		t.file = part + 1
		for len(p.stems) <= t.file {
			p.stems = append(p.stems, fmt.Sprintf("model-TP-%03d", len(p.stems)-1))
		}
	}
	slices.SortStableFunc(p.tensors, func(a, b tensor) int { return a.file - b.file })
	return nil
}

// part is the number of the part that a projection holds, from its name: "gate.part1".
func (p *plan) part(t *tensor) (int, bool) {
	proj := &p.manifest.Forms[p.manifest.Layers[t.layer]].Projections[t.projection]
	_, after, found := strings.Cut(proj.Name, ".part")
	digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
	n, err := strconv.Atoi(after[:digits])
	return n, found && err == nil
}

// cut spreads tensors over files of at most so many bytes, and returns how many
// each file has.
func cut(tensors []tensor, most int64) (counts []int) {
	var left int64
	for i := range tensors {
		if i == 0 || tensors[i].bytes > left {
			counts, left = append(counts, 0), most
		}
		counts[len(counts)-1]++
		left -= tensors[i].bytes
	}
	return counts
}
