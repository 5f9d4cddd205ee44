package discover

import "strings"

// class is what kind of tensor a name says it is.
type class uint8

const (
	other       class = iota
	expert            // of a routed expert: a part of a record
	likeExpert        // named like one, but of no kind that is known
	router            // the router's matrix
	routerBias        // added to its products
	selection         // added to its scores, only to choose
	hashTable         // token to experts, in place of a choice
	routerScale       // changes the router's input
	routerOther       // whatever else belongs to a router
	sharedExpert
	chunkExpert     // routed by the choice of a group of others
	attentionExpert // of a mixture of attention heads
)

// form is what a name's kind says about the tensor beside its role.
type form uint8

const (
	llama       form = 1 << iota // llama.cpp's names: ranks are exact
	flat                         // all experts' rows in one matrix
	interleaved                  // gate and up rows alternate
	downTurned                   // the down matrix is stored like gate and up
	outputsFast                  // columns are outputs (GPTQ, AWQ)
	pieced                       // part tells the share
)

const stacked = -1 // the expert number of a tensor that holds all experts of a layer

// name is what a tensor's name says.
type name struct {
	class  class
	stack  string // what stands before the word of the block number
	block  int    // -1 if there is none
	ahead  bool   // marked as predicting further tokens
	marked bool   // only blocks ahead have a tensor like this
	// Of an expert's tensor:
	role     role
	side     uint8 // place in sides, from 1; 0 for the weights
	expert   int   // or stacked
	from, to int   // where the expert's number stands in the name
	part     int
	form     form
}

// parser splits names; its buffers are reused.
type parser struct {
	text string
	segs []string
	at   []int // where each segment starts
}

// parse reads a name. rank is the tensor's number of dimensions: a few names
// mean experts only where there are three.
func (p *parser) parse(text string, rank int) name {
	p.split(text)
	if n, ok := p.llama(); ok {
		return n
	}
	return p.published(rank)
}

func (p *parser) split(text string) {
	p.text, p.segs, p.at = text, p.segs[:0], p.at[:0]
	for at := 0; ; {
		i := strings.IndexByte(text[at:], '.')
		p.at = append(p.at, at)
		if i < 0 {
			p.segs = append(p.segs, text[at:])
			return
		}
		p.segs = append(p.segs, text[at:at+i])
		at += i + 1
	}
}

// rest is the name from a segment on, "" behind the last.
func (p *parser) rest(i int) string {
	if i >= len(p.segs) {
		return ""
	}
	return p.text[p.at[i]:]
}

// seg is a segment, or "" behind the last.
func (p *parser) seg(i int) string {
	if i >= len(p.segs) {
		return ""
	}
	return p.segs[i]
}

// number accepts decimal digits without a leading zero, below 2^31, so that no
// two names mean one number.
func number(s string) (int, bool) {
	if s == "" || len(s) > 10 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, n < 1<<31
}

// expertAt notes that segment i is the expert's number.
func (p *parser) expertAt(n *name, i, number int) {
	n.expert, n.from, n.to = number, p.at[i], p.at[i]+len(p.segs[i])
}
