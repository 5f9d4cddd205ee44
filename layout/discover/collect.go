package discover

import (
	"fmt"
	"strconv"

	"outrider/layout"
)

// key names the tensors that are one part of all experts of one block.
type key struct {
	stack int
	ahead bool // by name: block counts from 0 again
	block int
	role  role
	side  uint8
	part  int
}

// group holds the tensors of a key: one that is stacked, or one an expert.
type group struct {
	key
	form    form
	members []member
	// from and to tell where the expert's number stands in the first one's name.
	from, to int
}

type member struct {
	tensor int32 // index into Input.Tensors
	expert int32 // or stacked
}

// place is one block of one stack.
type place struct {
	stack int
	ahead bool
	block int
}

func (k key) place() place { return place{k.stack, k.ahead, k.block} }

// aside is a tensor that is no part of a record.
type aside struct {
	tensor int32
	class  class
	place
}

// finder is the state of one discovery.
type finder struct {
	Input
	opts   Options
	parser parser

	stacks   []string       // by number
	stackOf  map[string]int // numbers of stacks
	groups   []*group       // in the order of the tensors
	marked   map[place]bool // blocks with a tensor that only those ahead have
	asides   []aside
	routers  map[place]*routerParts
	main     int // the stack of the forward pass
	blocks   int // number of its blocks
	experts  int
	layers   []layerGroups
	resident sums
}

// layerGroups are the groups of one layer to be laid out.
type layerGroups struct {
	id int
	place
	groups []*group
}

func (f *finder) tensor(m member) *Tensor { return &f.Tensors[m.tensor] }

// collect sorts all tensors by what their names say.
func (f *finder) collect() error {
	byKey := map[key]*group{}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n := f.parser.parse(t.Name, len(t.Dims))
		if n.class == likeExpert {
			return f.fail(ErrExperts, t, "tensor %q is named like a routed expert's, but belongs to no record; known are %s, and side tensors of these", t.Name, f.pattern())
		}
		at := place{f.stack(n.stack), n.ahead, n.block}
		if n.marked && n.block >= 0 {
			f.marked[at] = true
		}
		if n.class != expert {
			f.asides = append(f.asides, aside{int32(i), n.class, at})
			f.noteRouter(n.class, at, int32(i))
			continue
		}
		k := key{at.stack, at.ahead, at.block, n.role, n.side, max(t.Part, n.part)}
		g := byKey[k]
		if g == nil {
			g = &group{key: k, form: n.form, from: n.from, to: n.to}
			byKey[k] = g
			f.groups = append(f.groups, g)
		}
		if len(g.members) > 0 {
			if err := f.sameKind(g, &n, t); err != nil {
				return err
			}
		}
		g.members = append(g.members, member{int32(i), int32(n.expert)})
	}
	return nil
}

func (f *finder) stack(prefix string) int {
	i, ok := f.stackOf[prefix]
	if !ok {
		i = len(f.stacks)
		f.stacks = append(f.stacks, prefix)
		f.stackOf[prefix] = i
	}
	return i
}

// sameKind makes sure that a tensor is named like the first of its group, but
// for the expert's number.
func (f *finder) sameKind(g *group, n *name, t *Tensor) error {
	first := f.tensor(g.members[0])
	switch {
	case g.stacked() != (n.expert == stacked):
		return f.fail(ErrExperts, t, "block %d has %q and %q: all experts in one tensor, and single experts' tensors of the same projection", n.block, first.Name, t.Name)
	case g.stacked():
		return f.fail(ErrExperts, t, "block %d has %q and %q for the same projection", n.block, first.Name, t.Name)
	case first.Name[:g.from] != t.Name[:n.from] || first.Name[g.to:] != t.Name[n.to:]:
		return f.fail(ErrExperts, t, "block %d has %q and %q: two kinds of names for the same projection", n.block, first.Name, t.Name)
	}
	return nil
}

func (g *group) stacked() bool { return g.members[0].expert == stacked }

// label names a group as records do: "gate", "down.bias", "up.part1.scale".
func (g *group) label(parts bool) string {
	s := g.role.String()
	if parts {
		s += ".part" + strconv.Itoa(g.part)
	}
	if g.side > 0 {
		s += "." + sides[g.side-1]
	}
	return s
}

func (f *finder) fail(sentinel error, t *Tensor, format string, args ...any) error {
	path := ""
	if t != nil && t.File >= 0 && t.File < len(f.Files) {
		path = f.Files[t.File].Path
	} else if len(f.Files) > 0 {
		path = f.Files[0].Path
	}
	return &layout.FormatError{Format: f.Format, Path: path, Offset: -1, Reason: fmt.Sprintf(format, args...), Err: sentinel}
}
