package torchfile

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Limits of a pickle.
const (
	maxPickle = 128 << 20
	maxValues = 1 << 23
	maxGlobal = 200
)

// mark is what MARK pushes.
type mark struct{}

// machine runs a pickle. All its instructions are those of protocol 2 that plain
// data needs; numbers are little-endian unless noted.
type machine struct {
	entry string
	code  []byte
	pos   int // of the next byte
	at    int // of the instruction at hand
	stack []any
	marks []int // places of marks on the stack
	memo  map[uint32]any
	count int // values made
	limit int // of values
}

// run answers with the value that the pickle describes.
func (m *machine) run() (any, error) {
	m.memo = map[uint32]any{}
	for {
		m.at = m.pos
		op, err := m.bytes(1)
		if err != nil {
			return nil, err
		}
		if op[0] == '.' {
			break
		}
		if err := m.step(op[0]); err != nil {
			return nil, err
		}
	}
	if len(m.stack) != 1 || len(m.marks) != 0 {
		return nil, m.damaged("the pickle ends with %d values, want one", len(m.stack))
	}
	return m.stack[0], nil
}

// step runs one instruction.
func (m *machine) step(op byte) error {
	if value, ok, err := m.constant(op); ok || err != nil {
		if err != nil {
			return err
		}
		return m.push(value)
	}
	switch op {
	case 0x80: // PROTO
		return m.proto()
	case '(': // MARK
		m.marks = append(m.marks, len(m.stack))
		return m.push(mark{})
	case 'q', 'r': // BINPUT, LONG_BINPUT
		return m.put(op)
	case 'h', 'j': // BINGET, LONG_BINGET
		return m.get(op)
	case 0x85, 0x86, 0x87: // TUPLE1 to TUPLE3
		items, err := m.pop(int(op) - 0x84)
		if err != nil {
			return err
		}
		return m.push(Tuple(items))
	case 't': // TUPLE
		items, err := m.popMark()
		if err != nil {
			return err
		}
		return m.push(Tuple(items))
	case 'a', 'e': // APPEND, APPENDS
		return m.appends(op == 'a')
	case 's', 'u': // SETITEM, SETITEMS
		return m.setItems(op == 's')
	case 'c': // GLOBAL
		return m.global()
	case 'R': // REDUCE
		return m.reduce()
	case 'Q': // BINPERSID
		return m.storage()
	}
	return m.refused("the pickle has an instruction %#02x (%s), which plain data of protocol 2 does not need; save the file again with torch.save's own pickle_protocol", op, called(op))
}

// constant reads the instructions that push one plain value.
func (m *machine) constant(op byte) (value any, ok bool, err error) {
	ok = true
	switch op {
	case 'N':
		return nil, true, nil
	case 0x88:
		return true, true, nil
	case 0x89:
		return false, true, nil
	case ']':
		return &List{}, true, nil
	case '}':
		return &Dict{}, true, nil
	case ')':
		return Tuple{}, true, nil
	case 'K', 'M', 'J': // BININT1, BININT2, BININT
		value, err = m.int(map[byte]int{'K': 1, 'M': 2, 'J': 4}[op])
	case 0x8a: // LONG1
		value, err = m.long()
	case 'G': // BINFLOAT, big-endian
		var b []byte
		if b, err = m.bytes(8); err == nil {
			value = math.Float64frombits(binary.BigEndian.Uint64(b))
		}
	case 'X': // BINUNICODE
		value, err = m.text()
	default:
		ok = false
	}
	return value, ok, err
}

// called is the name of a few instructions that a hostile or newer file has.
func called(op byte) string {
	names := map[byte]string{'b': "BUILD", 'i': "INST", 'o': "OBJ", 0x81: "NEWOBJ", 0x82: "EXT1", 0x92: "NEWOBJ_EX", 0x93: "STACK_GLOBAL",
		'P': "PERSID", 0x8b: "LONG4", 0x8c: "SHORT_BINUNICODE", 0x94: "MEMOIZE", 0x95: "FRAME", 'B': "BINBYTES", 'C': "SHORT_BINBYTES"}
	if name := names[op]; name != "" {
		return name
	}
	return fmt.Sprintf("%q", op)
}

func (m *machine) proto() error {
	b, err := m.bytes(1)
	if err == nil && b[0] > 5 {
		err = m.damaged("the pickle has protocol %d, want up to 5", b[0])
	}
	return err
}

func (m *machine) bytes(n int) ([]byte, error) {
	if n < 0 || n > len(m.code)-m.pos {
		return nil, m.damaged("the pickle ends inside an instruction")
	}
	b := m.code[m.pos : m.pos+n]
	m.pos += n
	return b, nil
}

// int reads an integer: of four bytes a signed one.
func (m *machine) int(n int) (int64, error) {
	b, err := m.bytes(n)
	if err != nil {
		return 0, err
	}
	switch n {
	case 1:
		return int64(b[0]), nil
	case 2:
		return int64(binary.LittleEndian.Uint16(b)), nil
	}
	return int64(int32(binary.LittleEndian.Uint32(b))), nil
}

// long reads a signed integer with its length before it.
func (m *machine) long() (any, error) {
	n, err := m.bytes(1)
	if err != nil {
		return nil, err
	}
	b, err := m.bytes(int(n[0]))
	if err != nil {
		return nil, err
	}
	if len(b) > 8 {
		return nil, m.refused("an int of %d bytes", len(b))
	}
	v := int64(0)
	for i, x := range b {
		v |= int64(x) << (8 * i)
	}
	if len(b) > 0 && len(b) < 8 && b[len(b)-1] >= 0x80 {
		v -= 1 << (8 * len(b))
	}
	return v, nil
}

func (m *machine) text() (any, error) {
	b, err := m.bytes(4)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(m.code)) {
		return nil, m.damaged("a text of %d bytes, more than the pickle has", n)
	}
	if b, err = m.bytes(int(n)); err != nil {
		return nil, err
	}
	if !utf8.Valid(b) {
		return nil, m.damaged("a text is not UTF-8")
	}
	return string(b), nil
}

// global reads two lines, module and name.
func (m *machine) global() error {
	var parts [2]string
	for i := range parts {
		rest := m.code[m.pos:]
		line, _, found := strings.Cut(string(rest[:min(len(rest), maxGlobal)]), "\n")
		if !found {
			return m.damaged("a name without an end")
		}
		parts[i], m.pos = line, m.pos+len(line)+1
	}
	g := global{parts[0], parts[1]}
	if !admitted(g) {
		return m.refused("the pickle uses %q; only plain containers, numbers, texts and tensors of numbers are read, nothing is run", g.String())
	}
	return m.push(g)
}

func (m *machine) damaged(format string, args ...any) error {
	return m.error(ErrDamaged, format, args...)
}
func (m *machine) refused(format string, args ...any) error {
	return m.error(ErrRefused, format, args...)
}

func (m *machine) error(sentinel error, format string, args ...any) error {
	return &Error{Entry: m.entry, Offset: int64(m.at), Reason: fmt.Sprintf(format, args...), Err: sentinel}
}
