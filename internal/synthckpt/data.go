package synthckpt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
)

// rule says how a tensor's numbers are made up. They are finite and small
// whatever the type, so that a runner can compute with them.
type rule struct {
	kind    ruleKind
	a, b, c int64
}

type ruleKind uint8

const (
	spread   ruleKind = iota // around 0
	nearOne                  // a norm's weights
	positive                 // scales
	ids                      // rows of b different experts below a
	groups                   // element i is i / a
	pair                     // the two numbers a and b
)

// ruleOf reads a data= option. Without one the name and the type decide: a norm's
// weights lie near 1, scales are positive, all others are spread around 0.
func ruleOf(text, name, typ string, vars map[string]int64) (rule, error) {
	r := rule{}
	switch text {
	case "":
		last := name[strings.LastIndexByte(name, '.')+1:]
		switch {
		case strings.Contains(name, "norm"):
			r.kind = nearOne
		case strings.Contains(last, "scale"): // also "scales", "weight_scale_inv"
			r.kind = positive
		}
	case "ids":
		r = rule{kind: ids, a: vars["E"], b: vars["K"]}
	case "groups":
		r = rule{kind: groups, a: vars["G"]}
	case "shape":
		r = rule{kind: pair, a: vars["OUT"], b: vars["IN"]}
	default:
		return r, fmt.Errorf("data=%s is not known", text)
	}
	if r.kind >= ids && typ != "I32" && typ != "I64" || r.kind == groups && r.a == 0 {
		return r, fmt.Errorf("data=%s does not go with %s and G %d", text, typ, r.a)
	}
	if _, ok := encoders[typ]; !ok {
		return r, fmt.Errorf("numbers of type %s cannot be made up", typ)
	}
	return r, nil
}

// chunkBlocks is how many blocks of a type are made at a time.
const chunkBlocks = 4096

// writeData streams a tensor's bytes: the same for the same seed, name and part.
func (m *Model) writeData(t *Tensor, out io.Writer) error {
	var key [16]byte
	binary.LittleEndian.PutUint64(key[:], m.seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(t.Part))
	random := rand.NewChaCha8(sha256.Sum256(append(key[:], t.Name...)))
	enc := encoders[t.Type]
	buf := make([]byte, 0, min(int64(chunkBlocks*enc.bytes), t.Bytes))
	for i, n := int64(0), t.Bytes/int64(enc.bytes); i < n; {
		buf = buf[:0]
		for ; i < n && len(buf) < chunkBlocks*enc.bytes; i++ {
			buf = enc.block(buf, random, t.rule, i)
		}
		if _, err := out.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// encoder makes the blocks of one type.
type encoder struct {
	bytes int // of a block
	block func(b []byte, random *rand.ChaCha8, r rule, i int64) []byte
}

// number makes up one number, exact in binary16: four bytes' sum has about the
// shape of a bell.
func number(random *rand.ChaCha8, r rule) float32 {
	bits := random.Uint64()
	v := int(bits&0xff+bits>>8&0xff+bits>>16&0xff+bits>>24&0xff) - 510
	switch r.kind {
	case nearOne:
		return 1 + float32(v)/8192
	case positive:
		return float32(max(v, -v)+1) / 8192
	}
	return float32(v) / 4096
}

// half is the binary16 of a number that number makes.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	exponent := int(bits>>23&0xff) - 127 + 15
	if exponent < 1 {
		return uint16(bits >> 16 & 0x8000) // 0, with its sign
	}
	return uint16(bits>>16&0x8000) | uint16(exponent)<<10 | uint16(bits>>13&0x3ff)
}

func float(bytes int, put func(b []byte, v float32) []byte) encoder {
	return encoder{bytes, func(b []byte, random *rand.ChaCha8, r rule, _ int64) []byte {
		return put(b, number(random, r))
	}}
}

// whole makes the numbers of an integer type of so many bytes.
func whole(bytes int) encoder {
	return encoder{bytes, func(b []byte, random *rand.ChaCha8, r rule, i int64) []byte {
		v := random.Uint64()
		switch r.kind {
		case ids:
			// The first of a row draws; the others follow it around the circle.
			v = uint64((r.row(i) + i%r.b) % r.a)
		case groups:
			v = uint64(i / r.a)
		case pair:
			v = uint64([]int64{r.a, r.b}[i%2])
		}
		var le [8]byte
		binary.LittleEndian.PutUint64(le[:], v)
		return append(b, le[:bytes]...)
	}}
}

// row is the first expert of a token's row.
func (r rule) row(i int64) int64 { return i / r.b * 7 % r.a }

// small makes bytes that are numbers or scales by themselves.
func small(spreadMask, scaleBase, scaleMask byte) encoder {
	return encoder{1, func(b []byte, random *rand.ChaCha8, r rule, _ int64) []byte {
		v := byte(random.Uint64())
		if r.kind == positive {
			return append(b, scaleBase+v&scaleMask)
		}
		return append(b, v&spreadMask)
	}}
}

// quantised makes blocks of random bytes, with scales at their places.
func quantised(bytes int, scales ...scale) encoder {
	return encoder{bytes, func(b []byte, random *rand.ChaCha8, _ rule, _ int64) []byte {
		at := len(b)
		for len(b) < at+bytes {
			b = binary.LittleEndian.AppendUint64(b, random.Uint64())
		}
		b = b[:at+bytes]
		for _, s := range scales {
			s.put(b[at+s.at:])
		}
		return b
	}}
}

// scale is one scale of a block. A binary16 keeps six random bits of its fraction.
type scale struct {
	at       int
	exponent int // of two
	negative bool
	small    byte // not a binary16 but one byte: this, plus a random bit
}

func (s scale) put(b []byte) {
	if s.small != 0 {
		b[0] = s.small + b[0]&1
		return
	}
	v := uint16(s.exponent+15)<<10 | uint16(b[0]&0x3f)<<4
	if s.negative {
		v |= 0x8000
	}
	binary.LittleEndian.PutUint16(b, v)
}
