package torchfile

import "math/bits"

const (
	maxNumel = 1 << 26
	maxRank  = 8
)

// reduce is a call: of the two functions that are admitted.
func (m *machine) reduce() error {
	pair, err := m.pop(2)
	if err != nil {
		return err
	}
	args, ok := pair[1].(Tuple)
	if !ok {
		return m.damaged("a call with %s for arguments", name(pair[1]))
	}
	switch pair[0] {
	case orderedDict:
		if len(args) > 0 {
			return m.refused("%v is called with %d arguments, want none", orderedDict, len(args))
		}
		return m.push(&Dict{})
	case rebuildTensor:
		t, err := m.tensor(args)
		if err != nil {
			return err
		}
		return m.push(t)
	}
	return m.refused("the pickle calls %s", name(pair[0]))
}

// storage makes a storage of ("storage", class, key, device, count).
func (m *machine) storage() error {
	id, err := m.pop(1)
	if err != nil {
		return err
	}
	t, _ := id[0].(Tuple)
	if len(t) != 5 || t[0] != "storage" {
		return m.refused("a persistent id that is no storage of a tensor")
	}
	class, isClass := t[1].(global)
	key, isKey := t[2].(string)
	numel, isInt := t[4].(int64)
	kind, known := dtypes[class]
	if !isClass || !isKey || !isInt || !known || numel < 0 {
		return m.damaged("a storage of (%s, %s, %s), want a class of numbers, a key and a count", name(t[1]), name(t[2]), name(t[4]))
	}
	return m.push(&storage{kind.dtype, key, numel})
}

// tensor makes a tensor of (storage, offset, shape, stride, requires_grad, hooks…).
func (m *machine) tensor(args Tuple) (*Tensor, error) {
	if len(args) < 4 {
		return nil, m.damaged("a tensor of %d parts, want at least 4", len(args))
	}
	s, ok := args[0].(*storage)
	offset, isInt := args[1].(int64)
	if !ok || !isInt {
		return nil, m.damaged("a tensor of (%s, %s), want a storage and an offset", name(args[0]), name(args[1]))
	}
	shape, err := m.sizes(args[2], "shape")
	if err != nil {
		return nil, err
	}
	stride, err := m.sizes(args[3], "stride")
	if err != nil {
		return nil, err
	}
	t := &Tensor{DType: s.dtype, Shape: shape, stride: stride, offset: offset, store: s}
	if len(shape) != len(stride) || !t.fits() {
		return nil, m.damaged("a tensor of shape %v, stride %v, offset %d, which does not lie in its storage of %d numbers or has more than %d", shape, stride, offset, s.numel, maxNumel)
	}
	return t, nil
}

func (m *machine) sizes(v any, what string) ([]int64, error) {
	t, ok := v.(Tuple)
	if !ok || len(t) > maxRank {
		return nil, m.damaged("a tensor's %s is %s, want a tuple of at most %d", what, name(v), maxRank)
	}
	list := make([]int64, len(t))
	for i := range t {
		n, ok := t[i].(int64)
		if !ok || n < 0 {
			return nil, m.damaged("a tensor's %s holds %v, want whole numbers of 0 or more", what, name(t[i]))
		}
		list[i] = n
	}
	return list, nil
}

// fits reports whether all numbers of the tensor lie in its storage, and are
// not too many.
func (t *Tensor) fits() bool {
	n, last := uint64(1), uint64(t.offset)
	for i, d := range t.Shape {
		if d == 0 {
			return t.offset >= 0 && t.offset <= t.store.numel
		}
		hi, lo := bits.Mul64(uint64(d-1), uint64(t.stride[i]))
		if hi != 0 || lo > 1<<62 || last > 1<<62 {
			return false
		}
		last += lo
		if hi, n = bits.Mul64(n, uint64(d)); hi != 0 || n > maxNumel {
			return false
		}
	}
	return t.offset >= 0 && last < uint64(t.store.numel)
}
