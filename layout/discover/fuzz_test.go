package discover

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"outrider/layout"
	"pgregory.net/rapid"
)

// FuzzName: whatever speaks of experts is part of a record, of a named group, or
// an error; never one of all other tensors.
func FuzzName(f *testing.F) {
	for i := range families {
		for _, line := range families[i].lines {
			f.Add(strings.Fields(strings.NewReplacer("{L}", "3", "{E}", "17").Replace(line))[0], uint8(2))
		}
	}
	f.Add("layers.0.experts", uint8(3))
	f.Add("experts", uint8(1))
	f.Add("blk.0.ffn_x_exps.7.numa.1.weight", uint8(2))
	f.Add("moe.0.linear", uint8(2))
	f.Fuzz(func(t *testing.T, text string, rank uint8) {
		checkName(t, text, int(rank%8))
	})
}

func checkName(t interface {
	Fatalf(string, ...any)
}, text string, rank int) {
	var p parser
	n := p.parse(text, rank)
	if n != p.parse(text, rank) {
		t.Fatalf("%q: parsed twice, got two results", text)
	}
	speaks := slices.ContainsFunc(strings.Split(text, "."), func(s string) bool {
		return s == "experts" || strings.HasSuffix(s, "_experts") || (strings.HasSuffix(s, "_exps") && s != "ffn_norm_exps")
	})
	if speaks && n.class == other {
		t.Fatalf("%q speaks of experts, but is one of all other tensors", text)
	}
	if n.class != expert {
		return
	}
	if n.block < 0 || n.role >= roles || int(n.side) > len(sides) || n.expert < stacked {
		t.Fatalf("%q: got %+v", text, n)
	}
	if n.expert != stacked {
		if got, ok := number(text[n.from:n.to]); !ok || got != n.expert {
			t.Fatalf("%q: expert %d stands at %d to %d", text, n.expert, n.from, n.to)
		}
	}
}

// words are what random names are made of.
var words = func() []string {
	list := []string{"", "0", "1", "00", "99999999999", "x", "numa", "per_expert_scale", "w13", "expert_0"}
	for i := range families {
		for _, line := range families[i].lines {
			list = append(list, strings.Split(strings.Fields(line)[0], ".")...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}()

func TestNamesAtRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segs := rapid.SliceOfN(rapid.SampledFrom(words), 1, 9).Draw(t, "segments")
		checkName(t, strings.NewReplacer("{L}", "3", "{E}", "17").Replace(strings.Join(segs, ".")), rapid.IntRange(0, 5).Draw(t, "rank"))
	})
}

// FuzzFind changes a family's model at random places: what is accepted is whole.
func FuzzFind(f *testing.F) {
	for i := range families {
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{0, 0, 1, 3, 1, 0, 2, 5, 9, 0, 4, 1})
	}
	f.Fuzz(func(t *testing.T, which uint8, changes []byte) {
		in := families[int(which)%len(families)].input()
		opts := Options{}
		for ; len(changes) >= 4 && len(in.Tensors) > 0; changes = changes[4:] {
			mutate(&in, &opts, int(binary.LittleEndian.Uint16(changes)), changes[2], changes[3])
		}
		cp, err := Find(in, opts)
		var fe *layout.FormatError
		if err != nil {
			if !errors.As(err, &fe) || !(errors.Is(err, ErrExperts) || errors.Is(err, ErrNoExperts)) {
				t.Fatalf("got %v, want a FormatError of this package", err)
			}
			return
		}
		checkAll(t, in, cp)
	})
}

// mutate makes one change, whose kind and size are given.
func mutate(in *Input, opts *Options, at int, kind, size byte) {
	i := at % len(in.Tensors)
	t := &in.Tensors[i]
	switch kind % 9 {
	case 0:
		in.Tensors = slices.Delete(in.Tensors, i, i+1)
	case 1:
		segs := strings.Split(t.Name, ".")
		segs[int(size)%len(segs)] = words[(at+int(size))%len(words)]
		t.Name = strings.Join(segs, ".")
	case 2:
		copied := *t
		copied.Part = int(size % 3)
		in.Tensors = append(in.Tensors, copied)
	case 3:
		if n := len(t.Dims); n > 0 {
			t.Dims[int(size)%n] = int64(size)
		}
	case 4:
		t.Dims = append(t.Dims, int64(size))
	case 5:
		t.Bytes = int64(size)
	case 6:
		in.Facts.Blocks, in.Facts.Predict = int(size%4), at%3
	case 7:
		in.Facts.Experts, in.Facts.OtherExperts = int(size%6), at%2
	case 8:
		opts.Predict, opts.TopK = size%2 == 1, at%3
	}
}

// checkAll proves that a description accounts for every byte.
func checkAll(t *testing.T, in Input, cp layout.Checkpoint) {
	t.Helper()
	if err := cp.Shape.Validate(); err != nil {
		t.Fatal(err)
	}
	var all int64
	for i := range in.Tensors {
		all += in.Tensors[i].Bytes
	}
	for _, g := range cp.Resident {
		all -= g.Bytes
	}
	for l := range cp.Layers {
		for i := range cp.Layers[l].Tensors {
			et := &cp.Layers[l].Tensors[i]
			if et.Name == "" || et.Bytes < 1 || et.Source == "" {
				t.Fatalf("got %+v", et)
			}
			for e := range cp.Shape.Experts {
				all -= et.Span(e).Bytes
			}
		}
	}
	if all != 0 {
		t.Fatalf("%d bytes are nowhere", all)
	}
}
