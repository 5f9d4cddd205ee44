package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outrider/layout"
)

// The sizes of the models of this package's tests.
var sizes = map[string]int64{"E": 4, "H": 64, "F": 24, "2F": 48, "EF": 96, "G": 2, "2H": 128, "B": 16, "V": 10, "K": 2,
	"H/2": 32, "F/2": 12, "H/8": 8, "F/8": 3, "H/32": 2, "0": 0, "1": 1, "2": 2, "3": 3}

var typeBits = map[string]int64{"F32": 32, "BF16": 16, "F16": 16, "U8": 8, "I8": 8, "I32": 32, "I64": 64, "U32": 32,
	"F8_E4M3": 8, "F8_E8M0": 8, "Q8_0": 8, "MXFP4": 4}

// model is a checkpoint written down: a line for each tensor, with its type and
// shape (slowest first, in GGUF fastest first), {L} for each of its blocks and {E}
// for each expert.
type model struct {
	name   string
	format string // "" means safetensors
	facts  Facts
	blocks []int // nil means 0 and 1
	lines  []string

	want     string   // the first layer's record
	resident []string // name:tensors
	routers  bool
	layers   int // 0 means as many as blocks
}

// input writes the model out.
func (m *model) input() Input {
	in := Input{Format: m.format, Files: []layout.CheckpointFile{{Path: "m", Size: 1 << 40}}, Facts: m.facts}
	if in.Format == "" {
		in.Format = "safetensors"
	}
	if in.Facts.TopK == 0 {
		in.Facts.TopK = 2
	}
	blocks := m.blocks
	if blocks == nil {
		blocks = []int{0, 1}
	}
	for _, line := range m.lines {
		each := []int{-1}
		if strings.Contains(line, "{L}") {
			each = blocks
		}
		for _, b := range each {
			m.add(&in, strings.ReplaceAll(line, "{L}", strconv.Itoa(b)))
		}
	}
	return in
}

func (m *model) add(in *Input, line string) {
	fields := strings.Fields(line)
	part := 0
	if n := len(fields); strings.HasPrefix(fields[n-1], "part=") {
		part, _ = strconv.Atoi(fields[n-1][5:])
		fields = fields[:n-1]
	}
	var dims []int64
	for _, f := range fields[2:] {
		d, ok := sizes[f]
		if !ok {
			panic("no size " + f)
		}
		dims = append(dims, d)
	}
	if in.Format == "safetensors" {
		slices.Reverse(dims)
	}
	bits := typeBits[fields[1]]
	if bits == 0 {
		panic("no type " + fields[1])
	}
	for _, d := range dims {
		bits *= d
	}
	count := 1
	if strings.Contains(fields[0], "{E}") {
		count = int(sizes["E"])
	}
	for e := range count {
		var at int64
		if n := len(in.Tensors); n > 0 {
			at = in.Tensors[n-1].Offset + in.Tensors[n-1].Bytes
		}
		in.Tensors = append(in.Tensors, Tensor{Name: strings.ReplaceAll(fields[0], "{E}", strconv.Itoa(e)), Type: fields[1],
			Dims: slices.Clone(dims), Offset: at, Bytes: (bits + 7) / 8, Part: part})
	}
}

// record writes a layer's record down: name, type, dimensions (fastest first),
// fusion, and T if transposed.
func record(l layout.CheckpointLayer) string {
	var s []string
	for i := range l.Tensors {
		t := &l.Tensors[i]
		d := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Dims), " ", "x"), "[]")
		text := t.Name + " " + t.Type + " " + d
		if t.Fused != "" {
			text += " " + string(t.Fused)
		}
		if t.Transposed {
			text += " T"
		}
		s = append(s, text)
	}
	return strings.Join(s, ", ")
}

func groupsOf(cp layout.Checkpoint) []string {
	var s []string
	for _, g := range cp.Resident {
		s = append(s, g.Name+":"+strconv.Itoa(g.Tensors))
	}
	return s
}

// checkWhole proves that a description has every byte and every tensor of its
// input once, at its place.
func checkWhole(t *testing.T, in Input, cp layout.Checkpoint) {
	t.Helper()
	if err := cp.Validate(); err != nil {
		t.Fatal(err)
	}
	var all, rest int64
	left := map[int64]*Tensor{} // by offset
	for i := range in.Tensors {
		ts := &in.Tensors[i]
		all += ts.Bytes
		if ts.Bytes > 0 {
			left[ts.Offset] = ts
		}
	}
	tensors := 0
	for _, g := range cp.Resident {
		tensors += g.Tensors
		all -= g.Bytes
		if !g.LeftOut {
			rest += g.Bytes
		}
	}
	if rest != cp.RestBytes {
		t.Errorf("resident groups have %d bytes, RestBytes is %d", rest, cp.RestBytes)
	}
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			et := &cp.Layers[l].Tensors[i]
			if n := len(et.Each); n > 0 {
				tensors += n
			} else {
				tensors++
			}
			for e := range cp.Shape.Experts {
				s := et.Span(e)
				all -= s.Bytes
				ts := left[et.Offset]
				name := et.Source
				if et.Each != nil {
					ts, name = left[s.Offset], strings.ReplaceAll(et.Source, "{expert}", strconv.Itoa(e))
				}
				if ts == nil || ts.Name != name || !slices.Equal(ts.Dims, et.SourceDims) || ts.Type != et.Type {
					t.Fatalf("%s of expert %d at %d is not tensor %q", et.Name, e, s.Offset, name)
				}
			}
		}
	}
	if all != 0 || tensors != len(in.Tensors) {
		t.Errorf("%d bytes of %d tensors are nowhere; %d tensors are told of", all, len(in.Tensors), tensors)
	}
}
