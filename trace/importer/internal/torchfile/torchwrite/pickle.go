package torchwrite

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// Pickle is the pickle of a value, protocol 2, and the storages that its tensors
// name by their places. It has the instructions of Python's pickler: each
// container, text and name is kept in the memo, each name and tensor written once.
func Pickle(v any) (code []byte, storages [][]byte, err error) {
	p := &pickler{seen: map[any]uint32{}}
	p.op(0x80, 2)
	if err := p.value(v); err != nil {
		return nil, nil, err
	}
	p.op('.')
	return p.code, p.storages, nil
}

type pickler struct {
	code     []byte
	memo     uint32
	seen     map[any]uint32
	storages [][]byte
}

// name is a Python name, "module\nname".
type name string

func (p *pickler) op(b ...byte) { p.code = append(p.code, b...) }

func (p *pickler) u32(n uint32) { p.code = binary.LittleEndian.AppendUint32(p.code, n) }

// indexed writes an instruction about a place of the memo: short or long.
func (p *pickler) indexed(short, long byte, i uint32) {
	if i < 256 {
		p.op(short, byte(i))
		return
	}
	p.op(long)
	p.u32(i)
}

func (p *pickler) keep() {
	p.indexed('q', 'r', p.memo)
	p.memo++
}

// once writes a value that is the same wherever it stands.
func (p *pickler) once(key any, write func()) {
	if i, ok := p.seen[key]; ok {
		p.indexed('h', 'j', i)
		return
	}
	write()
	p.seen[key] = p.memo
	p.keep()
}

func (p *pickler) global(module, class string) {
	n := name(module + "\n" + class)
	p.once(n, func() { p.code = append(p.code, "c"+string(n)+"\n"...) })
}

func (p *pickler) text(s string) {
	p.once(s, func() {
		p.op('X')
		p.u32(uint32(len(s)))
		p.code = append(p.code, s...)
	})
}

func (p *pickler) int(n int64) {
	switch {
	case n >= 0 && n < 256:
		p.op('K', byte(n))
	case n >= 0 && n < 1<<16:
		p.op('M', byte(n), byte(n>>8))
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.op('J')
		p.u32(uint32(n))
	default:
		p.op(0x8a, 8)
		p.code = binary.LittleEndian.AppendUint64(p.code, uint64(n))
	}
}

func (p *pickler) value(v any) error {
	switch v := v.(type) {
	case nil:
		p.op('N')
	case bool:
		p.op(map[bool]byte{true: 0x88, false: 0x89}[v])
	case int:
		p.int(int64(v))
	case int64:
		p.int(v)
	case float64:
		p.op('G')
		p.code = binary.BigEndian.AppendUint64(p.code, math.Float64bits(v))
	case string:
		p.text(v)
	case Tuple:
		return p.tuple(v)
	case []any:
		return p.list(v)
	case Dict:
		return p.dict(v)
	case *Tensor:
		p.once(v, func() { p.tensor(v) })
	default:
		return fmt.Errorf("torchwrite: a %T cannot be written", v)
	}
	return nil
}

func (p *pickler) values(list []any) error {
	for _, v := range list {
		if err := p.value(v); err != nil {
			return err
		}
	}
	return nil
}

func (p *pickler) list(v []any) error {
	p.op(']')
	p.keep()
	if len(v) == 0 {
		return nil
	}
	p.op('(')
	err := p.values(v)
	p.op('e')
	return err
}

func (p *pickler) dict(v Dict) error {
	p.op('}')
	p.keep()
	p.op('(')
	for _, e := range v {
		if err := p.values(e[:]); err != nil {
			return err
		}
	}
	p.op('u')
	return nil
}

func (p *pickler) tuple(v Tuple) error {
	if len(v) == 0 {
		p.op(')')
		return nil
	}
	if len(v) > 3 {
		p.op('(')
	}
	if err := p.values(v); err != nil {
		return err
	}
	if len(v) > 3 {
		p.op('t')
	} else {
		p.op(0x84 + byte(len(v)))
	}
	p.keep()
	return nil
}

// tensor writes _rebuild_tensor_v2(storage, offset, shape, stride, False, OrderedDict()).
func (p *pickler) tensor(t *Tensor) {
	p.global("torch._utils", "_rebuild_tensor_v2")
	p.op('(', '(')
	p.text("storage")
	p.global("torch", t.Class)
	p.text(strconv.Itoa(len(p.storages)))
	p.text("cuda:0")
	p.int(int64(t.Numel))
	p.op('t')
	p.keep()
	p.op('Q')
	p.storages = append(p.storages, t.Data)
	p.int(int64(t.Offset))
	p.ints(t.Shape)
	p.ints(t.stride())
	p.op(0x89)
	p.global("collections", "OrderedDict")
	p.op(')', 'R')
	p.keep()
	p.op('t')
	p.keep()
	p.op('R')
}

func (p *pickler) ints(list []int) {
	t := make(Tuple, len(list))
	for i, n := range list {
		t[i] = n
	}
	_ = p.tuple(t) // ints can be written
}

func (t *Tensor) stride() []int {
	if t.Stride != nil {
		return t.Stride
	}
	stride := make([]int, len(t.Shape))
	for i, n := len(t.Shape)-1, 1; i >= 0; i-- {
		stride[i] = n
		n *= t.Shape[i]
	}
	return stride
}
