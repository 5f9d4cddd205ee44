package gguf

// rawValue is a value whose bytes are known by their place only: head may
// still move while it grows.
type rawValue struct {
	Value
	start, end int64
}

func (s *shard) parseMeta(c *cursor, count int) error {
	s.meta = make(map[string]Value, min(count, 1024))
	raws := make(map[string]rawValue, min(count, 1024))
	for i := range count {
		at := c.pos
		start, end, err := c.text(maxKeyBytes, numbered("metadata key", i))
		if err != nil {
			return err
		}
		name := c.head[start:end]
		key := string(name)
		if _, twice := raws[key]; twice {
			c.pos = at
			return c.fail(ErrDamaged, "metadata key %q is there twice", key)
		}
		v, err := c.value(name)
		if err != nil {
			return err
		}
		s.keys = append(s.keys, key)
		raws[key] = v
	}
	for key, r := range raws {
		r.raw = c.head[r.start:r.end:r.end]
		s.meta[key] = r.Value
	}
	return nil
}

// value steps over one value and checks it, so that decoding later cannot fail.
func (c *cursor) value(key []byte) (rawValue, error) {
	kind, err := c.u32(ofKey(key))
	if err != nil {
		return rawValue{}, err
	}
	v := rawValue{Value: Value{kind: Kind(kind), big: c.big}}
	if !v.kind.known() {
		c.pos -= 4
		return v, c.fail(ErrDamaged, "metadata key %q has %v, which the format does not have", key, v.kind)
	}
	if v.kind == KindArray {
		return c.array(key, v)
	}
	v.start = c.pos
	err = c.skipElems(key, v.kind, 1)
	v.end = c.pos
	return v, err
}

func (c *cursor) array(key []byte, v rawValue) (rawValue, error) {
	at := c.pos
	elem, err := c.u32(ofKey(key))
	if err != nil {
		return v, err
	}
	v.elem = Kind(elem)
	if !v.elem.known() || v.elem == KindArray {
		c.pos = at
		return v, c.fail(ErrDamaged, "metadata key %q is an array of %v, which is not supported", key, v.elem)
	}
	n, err := c.u64(ofKey(key))
	if err != nil {
		return v, err
	}
	least := v.elem.fixed()
	if least == 0 {
		least = 8
	}
	if n > maxHeaderBytes/uint64(least) {
		c.pos = at
		return v, c.fail(ErrDamaged, "metadata key %q is an array of %d elements, more than a header holds", key, n)
	}
	if int64(n)*least > c.left() {
		return v, c.fail(ErrTruncated, "metadata key %q is an array of %d elements, the file has %d bytes left; get the file again", key, n, c.left())
	}
	v.n, v.start = int(n), c.pos
	err = c.skipElems(key, v.elem, v.n)
	v.end = c.pos
	return v, err
}

func (c *cursor) skipElems(key []byte, kind Kind, n int) error {
	if kind == KindString {
		for range n {
			if _, _, err := c.skipString(maxStringBytes, ofKey(key)); err != nil {
				return err
			}
		}
		return nil
	}
	b, err := c.take(int64(n)*kind.fixed(), ofKey(key))
	if err != nil || kind != KindBool {
		return err
	}
	for i, x := range b {
		if x > 1 {
			c.pos += int64(i - n)
			return c.fail(ErrDamaged, "metadata key %q is a bool of value %d", key, x)
		}
	}
	return nil
}
