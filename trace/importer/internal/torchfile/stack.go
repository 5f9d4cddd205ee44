package torchfile

import "encoding/binary"

func (m *machine) push(v any) error {
	if m.count++; m.count > m.limit {
		return m.damaged("the pickle has more than %d values", m.limit)
	}
	m.stack = append(m.stack, v)
	return nil
}

// pop takes n values off the stack, none of them a mark. They are the caller's.
func (m *machine) pop(n int) ([]any, error) {
	floor := 0
	if k := len(m.marks); k > 0 {
		floor = m.marks[k-1] + 1
	}
	if len(m.stack)-n < floor {
		return nil, m.damaged("an instruction needs %d values, there are %d", n, len(m.stack)-floor)
	}
	top := m.stack[len(m.stack)-n:]
	items := append(make([]any, 0, n), top...)
	clear(top)
	m.stack = m.stack[:len(m.stack)-n]
	return items, nil
}

// popMark takes the values above the last mark, and the mark.
func (m *machine) popMark() ([]any, error) {
	if len(m.marks) == 0 {
		return nil, m.damaged("an instruction needs a mark, there is none")
	}
	items, err := m.pop(len(m.stack) - m.marks[len(m.marks)-1] - 1)
	if err != nil {
		return nil, err
	}
	m.stack = m.stack[:len(m.stack)-1]
	m.marks = m.marks[:len(m.marks)-1]
	return items, nil
}

// top is the value on top, which stays.
func (m *machine) top() (any, error) {
	if len(m.stack) == 0 {
		return nil, m.damaged("an instruction needs a value, there is none")
	}
	v := m.stack[len(m.stack)-1]
	if _, isMark := v.(mark); isMark {
		return nil, m.damaged("an instruction needs a value, there is a mark")
	}
	return v, nil
}

func (m *machine) index(op byte) (uint32, error) {
	if op == 'q' || op == 'h' {
		b, err := m.bytes(1)
		if err != nil {
			return 0, err
		}
		return uint32(b[0]), nil
	}
	b, err := m.bytes(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (m *machine) put(op byte) error {
	i, err := m.index(op)
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	if m.memo[i] = v; len(m.memo) > m.limit {
		return m.damaged("the pickle keeps more than %d values", m.limit)
	}
	return nil
}

func (m *machine) get(op byte) error {
	i, err := m.index(op)
	if err != nil {
		return err
	}
	v, ok := m.memo[i]
	if !ok {
		return m.damaged("the pickle names value %d, which it did not keep", i)
	}
	return m.push(v)
}

// args takes one or n values, or all above the last mark.
func (m *machine) args(single bool, n int) ([]any, error) {
	if single {
		return m.pop(n)
	}
	return m.popMark()
}

func (m *machine) appends(single bool) error {
	items, err := m.args(single, 1)
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	list, ok := v.(*List)
	if !ok {
		return m.refused("the pickle appends to %s, which is no list", name(v))
	}
	list.Items = append(list.Items, items...)
	return nil
}

func (m *machine) setItems(single bool) error {
	items, err := m.args(single, 2)
	if err != nil {
		return err
	}
	v, err := m.top()
	if err != nil {
		return err
	}
	dict, ok := v.(*Dict)
	switch {
	case !ok:
		return m.refused("the pickle sets items of %s, which is no dict", name(v))
	case len(items)%2 != 0:
		return m.damaged("a key without a value")
	}
	for i := 0; i < len(items); i += 2 {
		dict.set(items[i], items[i+1])
	}
	return nil
}
