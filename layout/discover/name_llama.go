package discover

import "strings"

// llamaPattern is what messages show of the names looked for.
const llamaPattern = "blk.N.ffn_{gate,up,gate_up,down}_exps.weight or blk.N.ffn_{gate,up,down}.E.weight"

var llamaRoles = map[string]role{"ffn_gate": gate, "ffn_up": up, "ffn_gate_up": gateUp, "ffn_down": down}

// llama reads llama.cpp's names; false for all others.
func (p *parser) llama() (name, bool) {
	n := name{block: -1, expert: stacked, form: llama}
	block, numbered := number(p.seg(1))
	if numbered = numbered && p.segs[0] == "blk"; numbered {
		n.block = block
	}
	for i, s := range p.segs {
		ffn, ok := strings.CutSuffix(s, "_exps")
		if !ok || s == "ffn_norm_exps" {
			continue
		}
		n.class = likeExpert
		if i == 2 && numbered && p.llamaExpert(&n, ffn) {
			n.class = expert
		}
		return n, true
	}
	if !numbered {
		return n, false
	}
	if r, ok := llamaRoles[p.seg(2)]; ok && len(p.segs) == 5 {
		if e, ok := number(p.segs[3]); ok && n.llamaEnd(p.segs[4]) {
			n.class, n.role = expert, r
			p.expertAt(&n, 3, e)
			return n, true
		}
	}
	n.class = p.llamaOther()
	n.marked = p.seg(2) == "nextn"
	return n, true
}

// llamaExpert reads what follows blk.N: one stacked tensor, or KTransformers'
// share of one expert for one memory node, ffn_up_exps.E.numa.K.weight.
func (p *parser) llamaExpert(n *name, ffn string) bool {
	r, ok := llamaRoles[ffn]
	n.role = r
	switch {
	case ok && len(p.segs) == 4:
		return n.llamaEnd(p.segs[3])
	case !ok || len(p.segs) != 7 || p.segs[4] != "numa":
		return false
	}
	e, ok1 := number(p.segs[3])
	node, ok2 := number(p.segs[5])
	p.expertAt(n, 3, e)
	n.part = node
	n.form |= pieced
	return ok1 && ok2 && n.llamaEnd(p.segs[6])
}

func (n *name) llamaEnd(s string) bool {
	switch s {
	case "weight":
		return true
	case "bias", "scale", "input_scale":
		n.side = sideOf[s]
		return true
	}
	return false
}

func (p *parser) llamaOther() class {
	s, end := p.seg(2), p.rest(3)
	switch {
	case s == "exp_probs_b" && (end == "" || end == "bias"):
		return selection
	case s == "ffn_gate_tid2eid":
		return hashTable
	case strings.HasSuffix(s, "_shexp"):
		return sharedExpert
	case strings.HasSuffix(s, "_chexps"):
		return chunkExpert
	case s != "ffn_gate_inp":
		return other
	}
	switch end {
	case "weight":
		return router
	case "bias":
		return routerBias
	case "scale":
		return routerScale
	}
	return routerOther
}
