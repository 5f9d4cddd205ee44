package discover

import (
	"slices"
	"strings"
)

// publishedPattern is what messages show of the names looked for.
const publishedPattern = "layers.N.….experts.E.{gate,up,down}_proj.weight, ….experts.E.{w1,w2,w3}.weight, ….experts.{gate_up_proj,down_proj} (all experts in one) and their kin"

// published reads the names of published models: a prefix, a word and the
// block's number, then what the tensor is in its block.
func (p *parser) published(rank int) name {
	n := name{block: -1, expert: stacked}
	next := p.layer(&n)
	n.class = p.inBlock(&n, next, rank)
	if n.class == expert && n.block < 0 || slices.ContainsFunc(p.segs[:next], isLike) {
		n.class = likeExpert
	}
	return n
}

// isLike reports whether a segment speaks of experts without being a known word.
func isLike(s string) bool {
	return s == "experts" || strings.HasSuffix(s, "_experts") || strings.HasSuffix(s, "_exps")
}

// layer finds the block's number, and returns the segment after it: the first
// of all if there is no number.
func (p *parser) layer(n *name) int {
	next := 0
	for i, s := range p.segs {
		n.ahead = n.ahead || aheadWords[s]
		n.marked = n.marked || (next > 0 && aheadMarks[s])
		if next > 0 || !(layerWords[s] || aheadWords[s]) {
			continue
		}
		if block, ok := number(p.seg(i + 1)); ok {
			n.block, n.stack, next = block, strings.TrimSuffix(p.text[:p.at[i]], "."), i+2
		}
	}
	return next
}

// inBlock finds what the segments from next on say.
func (p *parser) inBlock(n *name, next, rank int) class {
	attention := false
	for j := next; j < len(p.segs); j++ {
		s := p.segs[j]
		switch {
		case sharedWords[s]:
			return sharedExpert
		case s == "chunk_experts":
			return chunkExpert
		case attentionWords[s]:
			attention = true
		case s == "experts" && attention:
			return attentionExpert
		case s == "experts":
			if c := p.routerClass(n, next); c != other {
				return c
			}
			return expertIf(p.experts(n, j+1))
		case s == "switch_mlp":
			return expertIf(p.projection(n, projections, j+1))
		case s == "moe" && isNumber(p.seg(j+1)):
			e, _ := number(p.seg(j + 1))
			p.expertAt(n, j+1, e)
			return expertIf(p.projection(n, grokProjections, j+2))
		case isLike(s):
			return likeExpert
		}
		if c := p.inContainer(n, j, rank); c != other {
			return c
		}
	}
	return p.routerClass(n, next)
}

func expertIf(known bool) class {
	if known {
		return expert
	}
	return likeExpert
}

func isNumber(s string) bool {
	_, ok := number(s)
	return ok
}

// inContainer reads experts that stand in their block's container with no word
// of their own: those of few models. It returns other for everything else.
func (p *parser) inContainer(n *name, j, rank int) class {
	var table map[string]role
	alternates := false
	switch s, after := p.segs[j], p.seg(j+1); {
	case s == "moe" && begins(stepProjections, after):
		table = stepProjections
	case s == "mlp" && begins(mlpProjections, after):
		table, alternates = mlpProjections, true
	case begins(graniteProjections, after) && (s == "block_sparse_moe" || rank >= 3 && containers[s]):
		table = graniteProjections
	default:
		return other
	}
	known := p.projection(n, table, j+1)
	if alternates {
		n.form |= interleaved
	}
	return expertIf(known)
}

// begins reports whether a segment is a name of the table, or one with an ending.
func begins(table map[string]role, s string) bool {
	for name := range table {
		if strings.HasPrefix(s, name) && (len(s) == len(name) || s[len(name)] == '_') {
			return true
		}
	}
	return false
}

// experts reads what follows the word: an expert's number, or a projection of all experts.
func (p *parser) experts(n *name, j int) bool {
	s := p.seg(j)
	e, next := number(p.seg(j + 1))
	if one, ok := number(s); ok {
		p.expertAt(n, j, one)
		return p.projection(n, projections, j+1)
	}
	switch {
	case (s == "mlp" || s == "mlp_experts") && next:
		p.expertAt(n, j+1, e)
		return p.projection(n, flatProjections, j+2)
	case s == "mlp":
		n.form |= flat | downTurned
		return p.projection(n, flatProjections, j+1)
	case strings.HasSuffix(s, "_projs"):
		p.expertAt(n, j+1, e)
		return next && p.ending(n, projections, s, p.rest(j+2))
	}
	return p.projection(n, projections, j)
}

// projection reads a projection's name and ending: gate_proj.weight_scale, or,
// where all experts are in one tensor, also gate_up_proj_scales.
func (p *parser) projection(n *name, table map[string]role, j int) bool {
	s := p.seg(j)
	if _, ok := table[s]; ok {
		return p.ending(n, table, s, p.rest(j+1))
	}
	if j != len(p.segs)-1 {
		return false
	}
	for i := range len(s) {
		if s[i] != '_' {
			continue
		}
		if _, ok := table[s[:i]]; ok && p.ending(n, table, s[:i], s[i+1:]) {
			return true
		}
	}
	return false
}

func (p *parser) ending(n *name, table map[string]role, projection, end string) bool {
	n.role = table[projection]
	n.side = sideOf[end]
	switch end {
	case "qweight":
		n.form |= outputsFast
	case "blocks": // GPT-OSS alone has them
		n.form |= interleaved
	}
	return n.side != 0 || mains[end]
}

// routerClass tells whether the block's segments from next on name a tensor of its router.
func (p *parser) routerClass(n *name, next int) class {
	if n.block < 0 {
		return other
	}
	k := next
	if containers[p.seg(k)] {
		k++
	}
	c, ok := routerTensors[p.rest(k)]
	switch {
	case ok && c == routerBias && p.seg(next) == "ffn" && p.seg(k) == "gate":
		return selection // DeepSeek's own names
	case ok:
		return c
	case routerWords[p.seg(k)]:
		return routerOther
	}
	return other
}
