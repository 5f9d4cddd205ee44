package synthckpt

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// maxSize bounds every number an expression may reach: no tensor is larger.
const maxSize = 1 << 40

// eval works out a size: whole numbers, variables, + - * / and parentheses,
// without spaces. Division rounds up, as blocks do.
func eval(text string, vars map[string]int64) (int64, error) {
	e := &expression{text: text, vars: vars}
	v, err := e.sum()
	if err == nil && e.pos < len(text) {
		err = fmt.Errorf("%q is left", text[e.pos:])
	}
	if err != nil {
		return 0, fmt.Errorf("%q: %w", text, err)
	}
	return v, nil
}

type expression struct {
	text string
	pos  int
	deep int
	vars map[string]int64
}

// next takes the next byte if it is one of these; 0 if not.
func (e *expression) next(of string) byte {
	if e.pos < len(e.text) && strings.IndexByte(of, e.text[e.pos]) >= 0 {
		e.pos++
		return e.text[e.pos-1]
	}
	return 0
}

func (e *expression) sum() (int64, error) { return e.chain("+-", e.product) }

func (e *expression) product() (int64, error) { return e.chain("*/", e.atom) }

// chain joins operands of one rank from left to right.
func (e *expression) chain(operators string, operand func() (int64, error)) (int64, error) {
	v, err := operand()
	if err != nil {
		return 0, err
	}
	for {
		op := e.next(operators)
		if op == 0 {
			return v, nil
		}
		w, err := operand()
		if err != nil {
			return 0, err
		}
		if v, err = apply(op, v, w); err != nil {
			return 0, err
		}
	}
}

func apply(op byte, v, w int64) (int64, error) {
	switch op {
	case '+':
		v += w
	case '-':
		v -= w
	case '*':
		hi, lo := bits.Mul64(uint64(v), uint64(w))
		if hi != 0 || lo > maxSize {
			return 0, fmt.Errorf("%d * %d is too large", v, w)
		}
		v = int64(lo)
	default:
		if w == 0 {
			return 0, fmt.Errorf("%d / 0", v)
		}
		v = (v + w - 1) / w
	}
	if v < 0 || v > maxSize {
		return 0, fmt.Errorf("%d is out of range", v)
	}
	return v, nil
}

func (e *expression) atom() (int64, error) {
	if e.next("(") != 0 {
		if e.deep++; e.deep > 16 {
			return 0, fmt.Errorf("too many parentheses")
		}
		v, err := e.sum()
		if err == nil && e.next(")") == 0 {
			err = fmt.Errorf("a parenthesis stays open")
		}
		e.deep--
		return v, err
	}
	from := e.pos
	for e.pos < len(e.text) && strings.IndexByte("+-*/()", e.text[e.pos]) < 0 {
		e.pos++
	}
	word := e.text[from:e.pos]
	if v, ok := e.vars[word]; ok {
		return v, nil
	}
	v, err := strconv.ParseUint(word, 10, 40)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a number nor a size that is known", word)
	}
	return int64(v), nil
}
